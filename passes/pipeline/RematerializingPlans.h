// SPDX-License-Identifier: Apache-2.0
/// \file
/// The plan of a step that may make values again: of several, each lowered, the one that is predicted to be the
/// fastest.
#pragma once

#include "passes/plan/PlanResidency.h"

namespace pumpgraph {

/// Like planResidency(), for virtual memory. The plan may repeat pure nodes (docs/design/rematerialization.md). The
/// fastest quick plan with repetitions is made in full, and so is the one without unless its bound is no lower. So a
/// full plan is never predicted to take longer than the one without repetitions.
tl::expected<PlannedStep, PlanError> planRematerializing(const Description &captured, const PlanOptions &options);

} // namespace pumpgraph
