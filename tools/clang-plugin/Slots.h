// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which bytes of a kernel's parameters hold addresses.
#pragma once

#include "Accesses.h"
#include "LocalObject.h"

#include "llvm/IR/Function.h"

#include <vector>

namespace pumpgraph::annotate {

/// The pointers that the parameters' types declare, and what else the kernel loads from a parameter to use it as an
/// address: a pointer in a union or in raw storage, an integer. Ascending.
std::vector<Slot> findSlots(llvm::Function &kernel, LocalObjects &objects);

} // namespace pumpgraph::annotate
