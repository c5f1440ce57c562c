// SPDX-License-Identifier: Apache-2.0
/// \file
/// The decisions of other steps of a session before a step is planned, in the planner's terms
/// (docs/design/plan-correctness.md, "A shared boundary").
#pragma once

#include "passes/plan/allocate/FramePlanner.h"

#include <string>

namespace pumpgraph {

/// Copies what `boundary` gives into the buffers of `step`. Returns why no plan can keep it, or nothing; `node` is set
/// to the node to blame, if one is.
std::string takeBoundary(Description &step, const Description &boundary, std::optional<NodeIndex> &node);

/// How many frames, the first ones, other steps use.
std::uint64_t othersFrames(const Description *boundary);

/// Reads off `step`, as takeBoundary() left it, what is given; nothing without a boundary.
GivenBoundary givenBoundary(const Description &step, const Timeline &timeline, const Description *boundary,
                            std::uint64_t frameCount);

} // namespace pumpgraph
