// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which pages stay in host memory at all times because nodes touch more than the frames can hold (docs/planner.md).
#pragma once

#include "passes/analysis/Timeline.h"
#include "pumpgraph/graph/Description.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pumpgraph {

/// Pieces any two of which some node uses together: each of their pages needs a frame of its own.
struct Clique {
  std::vector<PieceIndex> pieces;
  std::uint64_t mostPages = 0; ///< of theirs that can have frames
};

/// What each node touches, if that is more than the frames hold.
std::vector<Clique> wideNodes(const Timeline &timeline, std::uint64_t frames);

/// What it costs to host a page of each piece: time on the link, microseconds. What nodes read and write of it, less a
/// part of what it would have been moved if there are so many frames.
using PagePrices = IndexedVector<PieceIndex, double>;
PagePrices hostingPrices(const Timeline &timeline, std::uint64_t frames, const Machine &machine);

/// Sets `hosted` of the step's private buffers, so that each clique has no more other pages than it may; where that is
/// so already, nothing is hosted. `timeline` is that of the step without hosted pages. Buffers that have frames
/// already, because they are given, stay as they are. Operands of the step's own copies, and of its child graphs, which
/// may hold copies, are never hosted (docs/decisions/0005). Returns the position of a clique that has too many for that
/// reason, if there is one.
std::optional<std::size_t> hostExcess(Description &step, const Timeline &timeline, const std::vector<Clique> &cliques,
                                      const PagePrices &prices);

/// The same of the nodes that touch more than `frames` private pages. Returns a node.
std::optional<NodeIndex> hostExcess(Description &step, const Timeline &timeline, std::uint64_t frames,
                                    const Machine &machine);

} // namespace pumpgraph
