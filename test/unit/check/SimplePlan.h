// SPDX-License-Identifier: Apache-2.0
/// \file
/// Plans made without the planner: slow, but correct, with no more edges than the contract asks for. They feed the
/// mutation tests and show that the checker accepts more than one way of planning.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <optional>

namespace pumpgraph::test {

/// A correct plan with `frames` frames: random frames for the pages, random pages resident at the boundary and some of
/// them mirrored, a page comes when it is needed and leaves when its frame is. Nothing if the random choice of frames
/// leads nowhere.
std::optional<Description> simplePlan(const Description &captured, std::uint64_t frames, std::uint64_t seed);

/// Copies instead of evicts and prefetches, one buffer after another in the pinned pool; edges instead of discards.
Description simpleLowering(const Description &planned);

} // namespace pumpgraph::test
