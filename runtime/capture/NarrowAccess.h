// SPDX-License-Identifier: Apache-2.0
/// \file
/// Narrows an access to a whole allocation by the kernel's access table.
#pragma once

#include "pumpgraph/graph/Description.h"
#include "runtime/capture/AccessTables.h"
#include "runtime/capture/LiftGraph.h"

#include <string>
#include <vector>

namespace pumpgraph::runtime {

struct Narrowed {
  std::vector<Access> accesses; ///< disjoint; none: nothing is touched
  std::string doubt;            ///< why the slot is not believed, though it claims to know; else empty
};

/// `whole` is what is known without the table, of all the bytes that are the allocation's; `base` is where the slot's
/// address points, counted like `whole.range`. `overwriting`: whether the launch's overwrites are to be believed.
///
/// What may be touched is known from above, so that a range which leaves the allocation is cut off there. What must be
/// overwritten is known from below: if that leaves the allocation, the program or the table is wrong, and nothing
/// of the slot is believed.
Narrowed narrow(const Access &whole, std::int64_t base, const Slot &slot, const KernelLaunch &launch, bool overwriting);

} // namespace pumpgraph::runtime
