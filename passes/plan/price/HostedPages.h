// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which pages stay in host memory at all times because nodes touch more than the frames can hold
/// (docs/design/planner.md).
#pragma once

#include "passes/analysis/Timeline.h"
#include "pumpgraph/graph/Description.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pumpgraph {

/// Pieces of which only so many pages can have frames: any two of them are used together by some node, or they meet in
/// another way (InterferenceGraph.h).
struct FrameLimit {
  std::vector<PieceIndex> pieces;
  std::uint64_t mostPages = 0; ///< of theirs that can have frames
};

/// What each node touches, if that is more than the frames hold.
std::vector<FrameLimit> wideNodes(const Timeline &timeline, std::uint64_t frames);

/// By buffer: whether all of it may be hosted. Operands of copies and of child graphs stay on the device, and so do
/// what has frames already and what has to be there between replays.
std::vector<bool> canBeHostedAsAWhole(const Description &step);

/// What it costs to host pages.
struct HostingPrices {
  struct Page {
    double aloneUs = 0;  ///< time on the link, if nothing else is hosted, less a part of what it would have been moved
    double besideUs = 0; ///< of that, what is not the time in which nodes read and write it; may be below zero
  };
  IndexedVector<PieceIndex, Page> pages; ///< by piece
  Machine machine;
};
/// If there are so many frames.
HostingPrices hostingPrices(const Timeline &timeline, std::uint64_t frames, const Machine &machine);

/// Sets `hosted` of the step's private buffers, so that each limit has no more other pages than it may; where that is
/// so already, nothing is hosted. `timeline` is that of the step without hosted pages, but for those that are hosted
/// beforehand, of which it has no piece. Those and buffers that have frames already, because they are given,
/// stay as they are. Operands of the step's own copies, and of its child graphs, which may hold copies, are never
/// hosted (docs/decisions/07-hosted-pages.md). Returns the position of a limit that has too many for that reason, if
/// there is one.
std::optional<std::size_t> hostExcess(Description &step, const Timeline &timeline,
                                      const std::vector<FrameLimit> &limits, const HostingPrices &prices);

/// The same of the nodes that touch more than `frames` private pages. Returns a node.
std::optional<NodeIndex> hostExcess(Description &step, const Timeline &timeline, std::uint64_t frames,
                                    const Machine &machine);

/// How many bytes have to be hosted, those of `step` among them, for every node to find frames for what else it
/// touches: as few as taking what most nodes have too much of comes to. Plans may need more.
std::uint64_t leastHostedBytes(Description step, std::uint64_t budgetBytes);

} // namespace pumpgraph
