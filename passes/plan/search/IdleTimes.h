// SPDX-License-Identifier: Apache-2.0
/// \file
/// Where whole buffers could be split: times in which they are not used.
#pragma once

#include "passes/analysis/Timeline.h"
#include "passes/plan/search/SplitStep.h"
#include "pumpgraph/graph/Description.h"

#include <vector>

namespace pumpgraph {

/// By buffer: whether it can be split. What is split already is not split again.
std::vector<bool> canBeSplit(const Description &step);

/// Of renamable buffers without hosted pages, by buffer, then node: a split of all of it after each time in which it is
/// idle for `leastShare` of the step's time in memory.
std::vector<Split> idleTimes(const Description &step, const Timeline &timeline, double leastShare);

} // namespace pumpgraph
