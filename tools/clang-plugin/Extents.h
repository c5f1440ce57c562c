// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which bytes behind an address a kernel can touch.
#pragma once

#include "Conditions.h"
#include "Walk.h"

namespace pumpgraph::annotate {

/// Accesses of one block whose addresses differ by constants.
struct AccessGroup {
  const llvm::Instruction *instruction; ///< one of them
  Polynomial offset;                    ///< without its constant
  /// From and to where from there, ascending.
  std::vector<std::pair<int64_t, int64_t>> pieces;
  Polynomial length; ///< of the one access whose size is no constant; else 0
  Requirements required;
};

/// Nothing if some access is not where it can be told.
std::optional<std::vector<AccessGroup>> groupAccesses(const SlotUses &uses, const llvm::Function &kernel,
                                                      Numbers &numbers);

/// Sets `begin` and `end` where they can be proved.
void findExtents(const std::vector<AccessGroup> &groups, Numbers &numbers, SlotAccesses &slot);

} // namespace pumpgraph::annotate
