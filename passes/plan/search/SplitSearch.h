// SPDX-License-Identifier: Apache-2.0
/// \file
/// Plans a step, and again with what may go on at other addresses; the fastest plan counts (docs/design/planner.md,
/// "Variants of a step").
#pragma once

#include "passes/plan/search/VariantSearch.h"

namespace pumpgraph {

/// `timeline` is the step's, with pieces of the usual size.
tl::expected<FoundPlan, PlanError> planWithSplits(const Description &step, const Timeline &timeline,
                                                  const PlanningRoom &room);

} // namespace pumpgraph
