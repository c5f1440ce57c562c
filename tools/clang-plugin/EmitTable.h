// SPDX-License-Identifier: Apache-2.0
/// \file
/// The host compile's part: the table of access_table.h in the object file.
#pragma once

#include "Exchange.h"

#include "llvm/IR/Module.h"

#include <string>
#include <vector>

namespace pumpgraph::annotate {

/// The kernels that the module registers with the CUDA runtime.
struct HostKernel {
  llvm::Constant *stub; ///< null: not known here
  std::string name;     ///< mangled
};
std::vector<HostKernel> findHostKernels(const llvm::Module &module);

/// Adds the table of the kernels that `device` knows, and a constructor and a destructor that register it. Returns how
/// many kernels it does not know.
size_t emitTable(llvm::Module &module, const std::vector<HostKernel> &kernels, const DeviceResult &device);

} // namespace pumpgraph::annotate
