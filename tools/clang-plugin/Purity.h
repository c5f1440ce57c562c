// SPDX-License-Identifier: Apache-2.0
/// \file
/// Whether a kernel can run again and leave the same: what it writes is a function, bit for bit, of what it reads and
/// of its parameters, and it does nothing else.
#pragma once

#include "Extents.h"

#include <string>
#include <vector>

namespace pumpgraph::annotate {

/// Whether the author says so: `__attribute__((annotate("pumpgraph.pure")))`.
bool isSaidToBePure(const llvm::Function &kernel);

/// What shows that a kernel is not pure, such as "reads a clock"; empty if nothing does. `accesses`: what was found of
/// its slots, and of other memory.
std::string findImpurity(const KernelCode &code, const KernelAccesses &accesses);

/// A slot that is only written, and where.
struct WrittenSlot {
  const SlotAccesses &slot;
  const std::vector<AccessGroup> *groups; ///< null: not known
};

/// Whether no thread sees what another one writes, and no two write different values into the same byte, in a launch
/// that satisfies two conditions: `begin` and `end` of all written slots are known, and no other slot leads to a byte
/// that one of these covers. Wants a kernel without impurity.
bool isPureApart(const KernelCode &code, const KernelAccesses &accesses, const std::vector<WrittenSlot> &written,
                 Numbers &numbers);

} // namespace pumpgraph::annotate
