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

/// What is no address to the kernel, whatever is in it: words of struct parameters of which it never looks at some
/// byte. Who launches a kernel leaves what was there before in the padding of a struct. None of `slots`; ascending.
std::vector<Slot> findUnreadWords(llvm::Function &kernel, LocalObjects &objects, const std::vector<Slot> &slots);

} // namespace pumpgraph::annotate
