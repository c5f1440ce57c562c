// SPDX-License-Identifier: Apache-2.0
/// \file
/// The figures of a step as it stands in the IR, whichever passes have run over it.
#pragma once

#include "passes/report/Summary.h"

namespace pumpgraph::ir {

/// Of a step without a plan: what it takes with every byte on the device. Of a planned or lowered one: what its own
/// plan takes. What the step was before planning is known only as far as the plan shows it: edges between captured
/// nodes that the planner added count as captured.
tl::expected<Summary, PlanError> summaryOf(const Description &description, const Machine &machine);

} // namespace pumpgraph::ir
