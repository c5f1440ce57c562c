// SPDX-License-Identifier: Apache-2.0
/// \file
/// The plan of a step on managed memory: of several, each lowered, the one that is predicted to be the fastest.
#pragma once

#include "passes/plan/PlanResidency.h"

namespace pumpgraph {

/// Like planResidency(). Plans are made with less for an operation than it takes, too: they move fewer bytes in more
/// pieces, of which lowering makes fewer again. Where the options let it choose, buffers stay in host memory for which
/// that is faster than operations (docs/design/planner.md, "Variants of a step").
tl::expected<PlannedStep, PlanError> planForManaged(const Description &captured, const PlanOptions &options);

} // namespace pumpgraph
