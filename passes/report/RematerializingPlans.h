// SPDX-License-Identifier: Apache-2.0
/// \file
/// The plan of a step that may make values again: of several, each lowered, the one that is predicted to be the
/// fastest.
#pragma once

#include "passes/plan/PlanResidency.h"

namespace pumpgraph {

/// Like planResidency(), for virtual memory. The plan may hold repetitions of pure nodes (docs/rematerialization.md).
/// Plans with repetitions are made quickly first, and in full where they take up to 1.3 times as long as the fastest.
/// What is returned takes no longer, as predicted, than the plan without any.
tl::expected<PlannedStep, PlanError> planRematerializing(const Description &captured, const PlanOptions &options);

} // namespace pumpgraph
