// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which pieces should be away between which of their uses, chosen by price for the whole step at once
/// (docs/design/planner.md, "The proposers").
#pragma once

#include "passes/plan/allocate/FramePlanner.h"
#include "passes/plan/schedule/Schedule.h"

#include <vector>

namespace pumpgraph {

/// A choice for DraftStart.
struct GapChoice {
  BoundaryStates boundary;
  std::vector<std::uint8_t> leaves;
  /// By position of a use: of the piece that leaves before it, so many pages would be enough.
  std::vector<std::uint32_t> pages;
  std::uint64_t effort = 0; ///< what it took, counted as in Draft
};

/// Prices the link as a plan leaves it, and the gaps by that.
GapChoice chooseGaps(const PlannerInput &input, const Draft &draft, const Schedule &schedule);

} // namespace pumpgraph
