// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which bytes behind an address every launch of a kernel overwrites, without having read them.
#pragma once

#include "Extents.h"

#include "llvm/Analysis/PostDominators.h"

namespace pumpgraph::annotate {

/// Sets `mustBegin` and `mustEnd` where they can be proved. The slot is only written, and no thread ends before its
/// kernel's end.
void findOverwrites(const std::vector<AccessGroup> &groups, Numbers &numbers, llvm::PostDominatorTree &postDominators,
                    SlotAccesses &slot);

} // namespace pumpgraph::annotate
