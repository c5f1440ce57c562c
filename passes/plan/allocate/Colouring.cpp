// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Indices.h"
#include "passes/plan/allocate/FramePlanner.h"

#include <algorithm>
#include <set>

namespace pumpgraph {

namespace {

/// Steps of the exact search before it gives up: some milliseconds.
constexpr std::uint64_t mostExactSteps = 1'000'000;
/// Pages above which it would need too much memory.
constexpr std::uint64_t mostSearchedPages = 512;

/// For each piece, the pieces that some node uses together with it, itself included, and those that must be apart.
IndexedVector<PieceIndex, std::vector<PieceIndex>> companions(const Timeline &timeline) {
  IndexedVector<PieceIndex, std::set<PieceIndex>> sets(timeline.pieces().size());
  for (NodeIndex node = 0; node < timeline.nodeCount(); ++node)
    for (std::uint32_t a : timeline.usesAt(node))
      for (std::uint32_t b : timeline.usesAt(node))
        sets[timeline.use(a).piece].insert(timeline.use(b).piece);
  for (const std::vector<PieceIndex> &apart : timeline.apartPieces())
    for (PieceIndex a : apart)
      for (PieceIndex b : apart)
        if (!timeline.usesOf(a).empty() && !timeline.usesOf(b).empty())
          sets[a].insert(b);
  IndexedVector<PieceIndex, std::vector<PieceIndex>> result;
  for (const std::set<PieceIndex> &set : sets)
    result.add({set.begin(), set.end()});
  return result;
}

/// Exact colouring by backtracking: always a page of the piece with the fewest frames left (DSATUR).
class ColourSearch {
public:
  ColourSearch(const Timeline &timeline, std::uint32_t frames)
      : companions_(companions(timeline)), frames_(frames), homes_(companions_.size()), pieces_(companions_.size()) {
    for (const PieceIndex index : indicesOf(pieces_)) {
      Uncoloured &piece = pieces_[index];
      piece.around.assign(frames, 0);
      if (!companions_[index].empty())
        piece.open = timeline.piece(index).pageCount;
      for (PieceIndex companion : companions_[index])
        piece.degree += timeline.piece(companion).pageCount;
    }
  }

  /// `given`: pieces that have their frames already.
  std::optional<PieceFrames> run(std::uint64_t firstFrame, const PieceFrames &given) {
    std::uint32_t used = 0;
    for (const PieceIndex piece : indicesOf(pieces_))
      for (const std::int32_t frame : given[piece])
        if (pieces_[piece].open > 0) {
          put(piece, static_cast<std::uint32_t>(frame) - static_cast<std::uint32_t>(firstFrame));
          used = std::max(used, static_cast<std::uint32_t>(homes_[piece].back()) + 1);
        }
    if (!colourRest(used))
      return std::nullopt;
    for (std::vector<std::int32_t> &frames : homes_)
      for (std::int32_t &frame : frames)
        frame += static_cast<std::int32_t>(firstFrame);
    return std::move(homes_);
  }

private:
  struct Uncoloured {
    std::uint32_t open = 0;            ///< pages without a frame
    std::vector<std::uint32_t> around; ///< by frame: companions' pages there
    std::uint32_t saturation = 0;      ///< frames with such pages
    std::uint64_t degree = 0;          ///< companions' pages
  };

  std::optional<PieceIndex> mostConstrained() const {
    std::optional<PieceIndex> best;
    const auto rank = [&](PieceIndex piece) { return std::pair(pieces_[piece].saturation, pieces_[piece].degree); };
    for (const PieceIndex piece : indicesOf(pieces_))
      if (pieces_[piece].open > 0 && (!best || rank(piece) > rank(*best)))
        best = piece;
    return best;
  }

  /// `used` frames occur so far; of the others any is as good as the next. A piece's pages are alike, so they take
  /// their frames in ascending order.
  bool colourRest(std::uint32_t used) {
    const std::optional<PieceIndex> piece = mostConstrained();
    if (!piece)
      return true;
    const std::vector<std::int32_t> &own = homes_[*piece];
    const std::uint32_t first = own.empty() ? 0 : static_cast<std::uint32_t>(own.back()) + 1;
    for (std::uint32_t frame = first; frame < std::min(used + 1, frames_); ++frame) {
      if (pieces_[*piece].around[frame] > 0)
        continue;
      if (++steps_ > mostExactSteps)
        return false;
      put(*piece, frame);
      if (colourRest(std::max(used, frame + 1)))
        return true;
      take(*piece, frame);
    }
    return false;
  }

  void put(PieceIndex piece, std::uint32_t frame) {
    --pieces_[piece].open;
    homes_[piece].push_back(static_cast<std::int32_t>(frame));
    for (PieceIndex companion : companions_[piece])
      pieces_[companion].saturation += pieces_[companion].around[frame]++ == 0;
  }
  void take(PieceIndex piece, std::uint32_t frame) {
    ++pieces_[piece].open;
    homes_[piece].pop_back();
    for (PieceIndex companion : companions_[piece])
      pieces_[companion].saturation -= --pieces_[companion].around[frame] == 0;
  }

  const IndexedVector<PieceIndex, std::vector<PieceIndex>> companions_;
  std::uint32_t frames_;
  PieceFrames homes_;
  IndexedVector<PieceIndex, Uncoloured> pieces_;
  std::uint64_t steps_ = 0;
};

/// The piece whose nodes use most pages first, each in the lowest frames that its companions leave.
std::optional<PieceFrames> colourGreedily(const PlannerInput &input) {
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

} // namespace

std::optional<PieceFrames> colourPieces(const PlannerInput &input) {
  const PieceFrames &given = input.given.homes;
  std::uint64_t pages = 0;
  for (const Piece &piece : input.timeline.pieces())
    pages += piece.pageCount;
  if (pages > mostSearchedPages)
    return colourGreedily(input);
  const std::uint64_t first = input.timeline.exclusivePages();
  std::optional<PieceFrames> homes =
      ColourSearch(input.timeline, static_cast<std::uint32_t>(input.frameCount - first)).run(first, given);
  for (const PieceIndex piece : indicesOf(given)) // those that no node uses
    if (homes && (*homes)[piece].empty())
      (*homes)[piece] = given[piece];
  return homes;
}

} // namespace pumpgraph
