// SPDX-License-Identifier: Apache-2.0
/// \file
/// Second addresses for what is not used for long, in which its pages may have other frames: splitting live ranges, in
/// a register allocator's words (docs/design/planner.md).
#pragma once

#include "passes/analysis/Timeline.h"
#include "pumpgraph/graph/Description.h"

#include <vector>

namespace pumpgraph {

/// A time in which a buffer is not used, and could move to another address.
struct IdleTime {
  BufferIndex buffer = 0;
  NodeIndex until = 0; ///< the node that uses it next, and needs its value
};

/// By buffer: whether it can go on at another address. What does so already does not do so again.
std::vector<bool> canGoOn(const Description &step);

/// Of renamable buffers without hosted pages, by buffer, then node. Those that take a smaller share of the step's time
/// in memory than `leastShare` are left out.
std::vector<IdleTime> idleTimes(const Description &step, const Timeline &timeline, double leastShare);

/// The step in which each buffer goes on in a new one after each of its `idle` times. New buffers follow all others.
Description withContinuations(Description step, const std::vector<IdleTime> &idle);

} // namespace pumpgraph
