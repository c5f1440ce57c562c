// SPDX-License-Identifier: Apache-2.0
/// \file
/// The search over variants of a step, which say what is hosted and what goes on at another address: the fastest plan
/// counts (docs/design/planner.md, "Variants of a step").
#pragma once

#include "passes/plan/PlanResidency.h"
#include "passes/plan/Workers.h"

#include <cstdint>

namespace pumpgraph {

struct FoundPlan {
  Description plan;
  SearchTrace trace; ///< of the search that found it, and then of variants
};

/// What all variants of a step have in common. All that it refers to outlives the searches.
struct PlanningRoom {
  const PlanOptions &options;
  std::uint64_t budgetBytes = 0;
  std::uint64_t frameCount = 0; ///< for exclusive and private pages together
  Workers &workers;
};

/// `timeline` is the step's, with pieces of the usual size.
tl::expected<FoundPlan, PlanError> planVariants(const Description &step, const Timeline &timeline,
                                                const PlanningRoom &room);

} // namespace pumpgraph
