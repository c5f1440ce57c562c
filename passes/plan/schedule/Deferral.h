// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which transfers begin later than they could, so that those of the other direction that the step waits for have the
/// link to themselves (docs/design/planner.md, "The proposers").
#pragma once

#include "passes/plan/schedule/Schedule.h"

#include <vector>

namespace pumpgraph {

/// When each node of the draft could start at the latest without the step taking longer, microseconds, by DraftNode:
/// after it come those that wait for it, of a transfer the next one of its lane, and of captured nodes the next one.
std::vector<double> latestStartsUs(const PlannerInput &input, const Draft &draft, const Schedule &schedule);

/// The draft with more deferrals: transfers that have time wait for those that have none, of the other direction,
/// beside which they ran. The same if there are none, or if neither direction loses anything to the other. Whether the
/// step becomes faster has to be tried.
Draft deferTransfers(const PlannerInput &input, const Draft &draft, const Schedule &schedule);

} // namespace pumpgraph
