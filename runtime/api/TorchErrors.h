// SPDX-License-Identifier: Apache-2.0
/// \file
/// Exceptions that PyTorch expects from its allocator.
#pragma once

namespace pumpgraph::runtime {

enum class TorchError {
  OutOfMemory, ///< torch.cuda.OutOfMemoryError in Python, where PyTorch is loaded
  Other        ///< RuntimeError
};

/// Throws an exception of the C++ library that the process has loaded, which the libraries of the process catch as
/// their own. libpumpgraph.so has a C++ library of its own linked in: what that one throws is never counted as caught
/// by the other. The frames between the caller and the catch may hold nothing that has to be destroyed, for the same
/// reason.
///
/// Returns where the process has no C++ library to throw with.
void throwForTorch(TorchError kind, const char *message);

} // namespace pumpgraph::runtime
