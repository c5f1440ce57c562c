// SPDX-License-Identifier: Apache-2.0
/// \file
/// Frames for all pages where some nodes touch as much as there is or more, and what has to be hosted for that
/// (docs/design/planner.md).
#pragma once

#include "passes/plan/price/HostedPages.h"

#include <tl/expected.hpp>

#include <cstdint>
#include <vector>

namespace pumpgraph {

/// Nodes that use so much of the frames that others have little choice.
std::vector<NodeIndex> crowdedNodes(const Timeline &timeline, std::uint64_t frames);

/// By buffer, then page: a private frame, counted from 0; `noFrame` for what is hosted or never used.
using PageFrames = std::vector<std::vector<std::int32_t>>;

struct WideColouring {
  PageFrames frames;
  std::vector<std::vector<bool>> isTight; ///< by buffer, then page: of a node or clique that wanted more than there are
  double hostingUs = 0;                   ///< what is hosted, at its prices
  std::uint64_t effort = 0;               ///< what it took: words of 64 frames or classes, classes and pieces looked at
};

/// Operands of copies are in the way, the pieces are of too many classes, or it takes too long.
struct NoColouring {
  std::uint64_t effort = 0; ///< as in WideColouring
};

/// Sets `hosted` as hostExcess() does, and then for other pieces too that find no frames, until all other pages have
/// some, such that no two that a node uses together share one. `timeline` is that of the step without hosted pages; no
/// buffer has frames already.
tl::expected<WideColouring, NoColouring> hostForColouring(Description &step, const Timeline &timeline,
                                                          std::uint64_t frames, const Machine &machine,
                                                          Balance balance);

} // namespace pumpgraph
