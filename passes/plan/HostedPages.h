// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which pages stay in host memory at all times because nodes touch more than the frames can hold (docs/planner.md).
#pragma once

#include "passes/analysis/Timeline.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <optional>

namespace pumpgraph {

/// Sets `hosted` of the step's private buffers, so that no node touches more than `frames` other private pages; where
/// that is so already, nothing is hosted. `timeline` is that of the step without hosted pages. Buffers that have
/// frames already, because they are given, stay as they are. Operands of the step's own copies, and of its child
/// graphs, which may hold copies, are never hosted (docs/decisions/0005). Returns a node that touches too much for that
/// reason, if there is one.
std::optional<NodeIndex> hostExcess(Description &step, const Timeline &timeline, std::uint64_t frames,
                                    const Machine &machine);

} // namespace pumpgraph
