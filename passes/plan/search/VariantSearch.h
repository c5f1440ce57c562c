// SPDX-License-Identifier: Apache-2.0
/// \file
/// The searches for one variant of a step, which says what is at which address and what is hosted beforehand: one for
/// each size of pieces, and for each choice of frames that leaves crowded nodes none.
#pragma once

#include "passes/analysis/Order.h"
#include "passes/plan/PlanResidency.h"
#include "passes/plan/search/Search.h"
#include "passes/plan/search/SplitStep.h"
#include "passes/plan/search/WideColouring.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace pumpgraph {

struct FoundPlan {
  Description plan;
  std::vector<Split> byPrice; ///< what is to leave by the prices of the plan; nothing if it is a quick one
  SearchTrace trace;          ///< of the search that found it
};

/// What all variants of a step have in common. All that it refers to outlives the searches.
struct PlanningRoom {
  const PlanOptions &options;
  std::uint64_t budgetBytes = 0;
  std::uint64_t frameCount = 0; ///< for exclusive and private pages together
  Workers &workers;
};

/// Hosts what nodes touch beyond the frames. Since a page keeps its frame, that can be too little: then a colouring
/// tells what else. If there is none, more is hosted by steps that grow, in the end all that can be.
tl::expected<FoundPlan, PlanError> planHosting(Description step, const Timeline &timeline, const PlanningRoom &room);

/// The plan of a step that hosts what it does and no more, with frames for what wide nodes use.
std::optional<FoundPlan> planInPlace(const Description &step, const WideColouring &frames, const PlanningRoom &room);

} // namespace pumpgraph
