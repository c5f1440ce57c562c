// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which pages stay in host memory at all times because nodes touch more than the frames can hold (docs/planner.md).
#pragma once

#include "passes/analysis/Timeline.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>

namespace pumpgraph {

/// Sets `hosted` of the step's private buffers, so that no node touches more than `frames` other private pages; where
/// that is so already, nothing is hosted. `timeline` is that of the step without hosted pages.
void hostExcess(Description &step, const Timeline &timeline, std::uint64_t frames, const Machine &machine);

} // namespace pumpgraph
