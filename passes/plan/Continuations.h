// SPDX-License-Identifier: Apache-2.0
/// \file
/// Second addresses for what is not used for long, in which its pages may have other frames: splitting live ranges, in
/// a register allocator's words (docs/planner.md).
#pragma once

#include "passes/analysis/Timeline.h"
#include "pumpgraph/graph/Description.h"

#include <vector>

namespace pumpgraph {

/// The nodes of a step between which a buffer could move to another address.
struct IdleTime {
  BufferIndex buffer = 0;
  NodeIndex from = 0; ///< the first node after which it is not used
  NodeIndex to = 0;   ///< the first one that uses it again, and needs its value
  double share = 0;   ///< of the step's time in memory
};

/// Of renamable buffers without hosted pages, by buffer, then node. Shorter ones than `leastShare` are left out.
std::vector<IdleTime> idleTimes(const Description &step, const Timeline &timeline, double leastShare);

/// The step in which each buffer goes on in a new one after each of its `idle` times. New buffers follow all others.
Description withContinuations(Description step, const std::vector<IdleTime> &idle);

} // namespace pumpgraph
