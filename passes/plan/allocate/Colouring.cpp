// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Indices.h"
#include "passes/plan/allocate/FramePlanner.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pumpgraph {

// The piece whose nodes use most pages first, each in the lowest frames that its companions leave.
std::optional<PieceFrames> colourPieces(const PlannerInput &input) {
  const Timeline &timeline = input.timeline;
  IndexedVector<PieceIndex, std::uint64_t> crowd(timeline.pieces().size(), 0);
  for (NodeIndex node = 0; node < timeline.nodeCount(); ++node)
    for (std::uint32_t position : timeline.usesAt(node)) {
      std::uint64_t &most = crowd[timeline.use(position).piece];
      most = std::max(most, timeline.workingSetPages(node));
    }
  const auto pieces = indicesOf(crowd);
  std::vector<PieceIndex> sequence(pieces.begin(), pieces.end());
  std::stable_sort(sequence.begin(), sequence.end(), [&](PieceIndex a, PieceIndex b) { return crowd[a] > crowd[b]; });

  PieceFrames homes = input.given.homes;
  const std::uint64_t first = timeline.exclusivePages();
  std::vector<bool> taken;
  for (const PieceIndex piece : sequence) {
    if (timeline.usesOf(piece).empty() || !homes[piece].empty())
      continue;
    taken.assign(input.frameCount - first, false);
    for (const Use &use : timeline.usesOf(piece))
      for (std::uint32_t position : timeline.usesAt(use.node))
        for (std::int32_t frame : homes[timeline.use(position).piece])
          taken[static_cast<std::uint64_t>(frame) - first] = true;
    for (std::uint32_t group : timeline.apartGroupsOf(piece))
      for (PieceIndex other : timeline.apartPieces()[group])
        for (std::int32_t frame : homes[other])
          taken[static_cast<std::uint64_t>(frame) - first] = true;
    std::uint64_t frame = 0;
    for (std::uint32_t page = 0; page < timeline.piece(piece).pageCount; ++page) {
      while (frame < taken.size() && taken[frame])
        ++frame;
      if (frame == taken.size())
        return std::nullopt;
      homes[piece].push_back(static_cast<std::int32_t>(first + frame++));
    }
  }
  return homes;
}

} // namespace pumpgraph
