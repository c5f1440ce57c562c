// SPDX-License-Identifier: Apache-2.0
/// \file
/// Frames for all pages where some nodes touch as much as there is or more, and what has to be hosted for that
/// (docs/design/planner.md).
#pragma once

#include "passes/plan/price/HostedPages.h"
#include "passes/plan/search/InterferenceGraph.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace pumpgraph {

/// By buffer, then page: a private frame, counted from 0; `noFrame` for what is hosted or never used.
using PageFrames = std::vector<std::vector<std::int32_t>>;

struct WideColouring {
  PageFrames frames;
  std::vector<std::vector<bool>> isTight; ///< by buffer, then page: of a node or clique that wanted more than there are
  double hostingUs = 0;                   ///< what is hosted, at its prices
};

/// Sets `hosted` as hostExcess() does, and then for other pieces too that find no frames, until all other pages have
/// some, such that no two that a node uses together share one. `timeline` is that of the step without hosted pages; no
/// buffer has frames already. Nothing if operands of copies are in the way, the pieces are of too many classes, or the
/// effort is spent.
std::optional<WideColouring> hostForColouring(Description &step, const Timeline &timeline, std::uint64_t frames,
                                              const Machine &machine, Effort &effort);

} // namespace pumpgraph
