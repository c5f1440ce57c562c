// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/Knobs.h"
#include "passes/plan/allocate/FramePlanner.h"

#include <algorithm>
#include <set>

namespace pumpgraph {

namespace {

/// For each piece, the pieces that some node uses together with it, itself included, and those that must be apart.
std::vector<std::vector<std::uint32_t>> companions(const Timeline &timeline) {
  std::vector<std::set<std::uint32_t>> sets(timeline.pieces().size());
  for (NodeIndex node = 0; node < timeline.nodeCount(); ++node)
    for (std::uint32_t a : timeline.usesAt(node))
      for (std::uint32_t b : timeline.usesAt(node))
        sets[static_cast<std::size_t>(timeline.use(a).piece)].insert(static_cast<std::uint32_t>(timeline.use(b).piece));
  for (const std::vector<PieceIndex> &apart : timeline.apartPieces())
    for (PieceIndex a : apart)
      for (PieceIndex b : apart)
        if (!timeline.usesOf(a).empty() && !timeline.usesOf(b).empty())
          sets[static_cast<std::size_t>(a)].insert(static_cast<std::uint32_t>(b));
  std::vector<std::vector<std::uint32_t>> result;
  for (const std::set<std::uint32_t> &set : sets)
    result.emplace_back(set.begin(), set.end());
  return result;
}

/// Exact colouring by backtracking: always a page of the piece with the fewest frames left (DSATUR).
class ColourSearch {
public:
  ColourSearch(const Timeline &timeline, std::uint32_t frames)
      : companions_(companions(timeline)), frames_(frames), open_(timeline.pieces().size(), 0),
        homes_(timeline.pieces().size()), around_(timeline.pieces().size(), std::vector<std::uint32_t>(frames, 0)),
        saturation_(timeline.pieces().size(), 0), degree_(timeline.pieces().size(), 0) {
    for (std::size_t i = 0; i < open_.size(); ++i) {
      if (!companions_[i].empty())
        open_[i] = timeline.piece(static_cast<PieceIndex>(i)).pageCount;
      for (std::uint32_t companion : companions_[i])
        degree_[i] += timeline.piece(static_cast<PieceIndex>(companion)).pageCount;
    }
  }

  /// `given`: pieces that have their frames already.
  std::optional<PieceFrames> run(std::uint64_t firstFrame, const PieceFrames &given) {
    std::uint32_t used = 0;
    for (std::uint32_t i = 0; i < open_.size(); ++i)
      for (const std::int32_t frame : given[static_cast<PieceIndex>(i)])
        if (open_[i] > 0) {
          put(i, static_cast<std::uint32_t>(frame) - static_cast<std::uint32_t>(firstFrame));
          used = std::max(used, static_cast<std::uint32_t>(homes_[static_cast<PieceIndex>(i)].back()) + 1);
        }
    if (!colourRest(used))
      return std::nullopt;
    for (std::vector<std::int32_t> &frames : homes_)
      for (std::int32_t &frame : frames)
        frame += static_cast<std::int32_t>(firstFrame);
    return std::move(homes_);
  }

private:
  std::optional<std::uint32_t> mostConstrained() const {
    std::optional<std::uint32_t> best;
    for (std::uint32_t i = 0; i < open_.size(); ++i)
      if (open_[i] > 0 &&
          (!best || std::pair(saturation_[i], degree_[i]) > std::pair(saturation_[*best], degree_[*best])))
        best = i;
    return best;
  }

  /// `used` frames occur so far; of the others any is as good as the next. A piece's pages are alike, so they take
  /// their frames in ascending order.
  bool colourRest(std::uint32_t used) {
    const std::optional<std::uint32_t> piece = mostConstrained();
    if (!piece)
      return true;
    const std::vector<std::int32_t> &own = homes_[static_cast<PieceIndex>(*piece)];
    const std::uint32_t first = own.empty() ? 0 : static_cast<std::uint32_t>(own.back()) + 1;
    for (std::uint32_t frame = first; frame < std::min(used + 1, frames_); ++frame) {
      if (around_[*piece][frame] > 0)
        continue;
      if (++steps_ > knobs::mostExactSteps)
        return false;
      put(*piece, frame);
      if (colourRest(std::max(used, frame + 1)))
        return true;
      take(*piece, frame);
    }
    return false;
  }

  void put(std::uint32_t piece, std::uint32_t frame) {
    --open_[piece];
    homes_[static_cast<PieceIndex>(piece)].push_back(static_cast<std::int32_t>(frame));
    for (std::uint32_t companion : companions_[piece])
      saturation_[companion] += around_[companion][frame]++ == 0;
  }
  void take(std::uint32_t piece, std::uint32_t frame) {
    ++open_[piece];
    homes_[static_cast<PieceIndex>(piece)].pop_back();
    for (std::uint32_t companion : companions_[piece])
      saturation_[companion] -= --around_[companion][frame] == 0;
  }

  std::vector<std::vector<std::uint32_t>> companions_;
  std::uint32_t frames_;
  std::vector<std::uint32_t> open_; ///< by piece: pages without a frame
  PieceFrames homes_;
  std::vector<std::vector<std::uint32_t>> around_; ///< by piece and frame: companions' pages there
  std::vector<std::uint32_t> saturation_;          ///< by piece: frames with such pages
  std::vector<std::uint64_t> degree_;              ///< by piece: companions' pages
  std::uint64_t steps_ = 0;
};

/// The piece whose nodes use most pages first, each in the lowest frames that its companions leave.
std::optional<PieceFrames> colourGreedily(const PlannerInput &input) {
  const Timeline &timeline = input.timeline;
  const std::size_t count = timeline.pieces().size();
  std::vector<std::uint64_t> crowd(count, 0);
  for (NodeIndex node = 0; node < timeline.nodeCount(); ++node)
    for (std::uint32_t position : timeline.usesAt(node)) {
      std::uint64_t &most = crowd[static_cast<std::size_t>(timeline.use(position).piece)];
      most = std::max(most, timeline.workingSetPages(node));
    }
  std::vector<std::uint32_t> sequence(count);
  for (std::uint32_t i = 0; i < count; ++i)
    sequence[i] = i;
  std::stable_sort(sequence.begin(), sequence.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return crowd[a] > crowd[b]; });

  PieceFrames homes = input.given.homes;
  const std::uint64_t first = timeline.exclusivePages();
  std::vector<bool> taken;
  for (std::uint32_t i : sequence) {
    const PieceIndex piece = static_cast<PieceIndex>(i);
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

} // namespace

std::optional<PieceFrames> colourPieces(const PlannerInput &input) {
  const PieceFrames &given = input.given.homes;
  std::uint64_t pages = 0;
  for (const Piece &piece : input.timeline.pieces())
    pages += piece.pageCount;
  if (pages > knobs::mostSearchedPages)
    return colourGreedily(input);
  const std::uint64_t first = input.timeline.exclusivePages();
  std::optional<PieceFrames> homes =
      ColourSearch(input.timeline, static_cast<std::uint32_t>(input.frameCount - first)).run(first, given);
  for (std::size_t i = 0; homes && i < given.size(); ++i) // those that no node uses
    if (const PieceIndex piece = static_cast<PieceIndex>(i); (*homes)[piece].empty())
      (*homes)[piece] = given[piece];
  return homes;
}

} // namespace pumpgraph
