// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/HostedPages.h"

#include "passes/analysis/HostedAccess.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace pumpgraph {

namespace {

/// Of the time that copies would have taken: they might have run beside other nodes, as hosted accesses never do.
constexpr double worthOfMove = 0.5;
/// Of the time of a copy up, for each page: where accesses cost the same, fewer pages are better.
constexpr double priceOfPage = 0.5;
/// Of what the accesses cost: hosting is never for nothing.
constexpr double leastShare = 0.05;

/// The largest value of any stretch, in constant time.
class RangeMax {
public:
  explicit RangeMax(std::vector<double> values) : levels_{std::move(values)} {
    for (std::size_t width = 1; 2 * width <= levels_[0].size(); width *= 2) {
      const std::vector<double> &last = levels_.back();
      std::vector<double> next;
      for (std::size_t i = 0; i + width < last.size(); ++i)
        next.push_back(std::max(last[i], last[i + width]));
      levels_.push_back(std::move(next));
    }
  }
  /// 0 if there are none.
  double of(std::size_t first, std::size_t end) const {
    if (first >= end)
      return 0;
    const std::size_t level = static_cast<std::size_t>(std::bit_width(end - first)) - 1;
    return std::max(levels_[level][first], levels_[level][end - (std::size_t{1} << level)]);
  }

private:
  std::vector<std::vector<double>> levels_; ///< by level: the largest of the 2^level values from each one on
};

/// What it costs to host pages: what nodes read and write of them, less what it would cost to move them.
class Prices {
public:
  Prices(const Timeline &timeline, std::uint64_t frames, const Machine &machine)
      : timeline_(timeline), machine_(machine), away_(shareAway(timeline, frames)) {}

  double ofPage(PieceIndex piece) const {
    const std::uint64_t bytes = timeline_.piece(piece).bytes;
    double accessUs = 0;
    for (const Use &use : timeline_.usesOf(piece))
      accessUs += linkUs({use.readsOld ? bytes : 0, use.writes ? bytes : 0}, machine_);
    const double us = std::max(leastShare * accessUs, accessUs - worthOfMove * movesUs(piece));
    return (us + priceOfPage * linkUs({bytes, 0}, machine_)) / timeline_.piece(piece).pageCount;
  }

private:
  /// By node: of what is alive and not used, the part that there is no room for.
  static std::vector<double> shareAway(const Timeline &timeline, std::uint64_t frames) {
    std::vector<std::uint64_t> began(timeline.nodeCount() + 1, 0), ended(timeline.nodeCount() + 1, 0);
    for (std::size_t i = 0; i < timeline.pieces().size(); ++i) {
      const Piece &piece = timeline.piece(static_cast<PieceIndex>(i));
      const std::span<const Use> uses = timeline.usesOf(static_cast<PieceIndex>(i));
      if (uses.empty())
        continue;
      began[piece.liveOut ? 0 : uses.front().node] += piece.pageCount;
      ended[piece.liveOut ? timeline.nodeCount() : uses.back().node + 1] += piece.pageCount;
    }
    std::vector<double> share;
    std::uint64_t alive = 0;
    for (NodeIndex node = 0; node < timeline.nodeCount(); ++node) {
      alive = alive + began[node] - ended[node];
      const std::uint64_t used = timeline.workingSetPages(node), room = frames - std::min(frames, used);
      const std::uint64_t rest = alive - used;
      share.push_back(room < rest ? 1 - static_cast<double>(room) / static_cast<double>(rest) : 0);
    }
    return share;
  }

  /// How long copies take for each time that the piece has to leave between two uses, as far as it has to.
  double movesUs(PieceIndex piece) const {
    const std::uint64_t bytes = timeline_.piece(piece).bytes;
    const std::span<const Use> uses = timeline_.usesOf(piece);
    if (uses.empty())
      return 0;
    double us = 0;
    bool isDirty = !timeline_.piece(piece).liveIn;
    const auto leave = [&](double part) {
      us += part * linkUs({bytes, isDirty ? bytes : 0}, machine_);
      isDirty = isDirty && part < 0.5;
    };
    for (std::size_t i = 1; i < uses.size(); ++i) {
      isDirty |= uses[i - 1].writes;
      if (uses[i].needsValue())
        leave(away_.of(uses[i - 1].node + 1, uses[i].node));
    }
    isDirty |= uses.back().writes;
    if (timeline_.piece(piece).liveOut)
      leave(std::max(away_.of(0, uses.front().node), away_.of(uses.back().node + 1, timeline_.nodeCount())));
    return us;
  }

  const Timeline &timeline_;
  const Machine &machine_;
  RangeMax away_;
};

/// Covers what every clique has too many of: a page of a piece covers one page of each clique that the piece belongs
/// to, at its price. That is a weighted multicover, for which taking what is cheapest for each page it covers is near
/// the best that can be had in reasonable time.
class Excess {
public:
  Excess(const Description &step, const Timeline &timeline, const std::vector<Clique> &cliques,
         const PagePrices &prices)
      : step_(step), timeline_(timeline), cliques_(cliques), prices_(prices), cliquesOf_(timeline.pieces().size()),
        hosted_(timeline.pieces().size(), 0), needy_(timeline.pieces().size(), 0) {
    for (std::size_t clique = 0; clique < cliques.size(); ++clique) {
      std::int64_t excess = -static_cast<std::int64_t>(cliques[clique].mostPages);
      for (PieceIndex piece : cliques[clique].pieces) {
        excess += timeline.piece(piece).pageCount;
        cliquesOf_[piece].push_back(clique);
      }
      excess_.push_back(excess);
    }
  }

  /// Of each piece, how many pages are hosted.
  IndexedVector<PieceIndex, std::uint32_t> run() {
    queue();
    while (!queue_.empty()) {
      const auto [price, piece] = queue_.top();
      queue_.pop();
      if (needy_[piece] == 0)
        continue;
      if (priceOf(piece) > price) { // fewer cliques need it than when it was queued
        queue_.push({priceOf(piece), piece});
        continue;
      }
      take(piece);
    }
    giveBack();
    return std::move(hosted_);
  }

  /// After run(): a clique that still has too many.
  std::optional<std::size_t> uncovered() const {
    const auto found = std::find_if(excess_.begin(), excess_.end(), [](std::int64_t pages) { return pages > 0; });
    if (found == excess_.end())
      return std::nullopt;
    return found - excess_.begin();
  }

private:
  using Entry = std::pair<double, PieceIndex>;

  void queue() {
    for (std::size_t i = 0; i < timeline_.pieces().size(); ++i) {
      const PieceIndex piece = static_cast<PieceIndex>(i);
      for (std::size_t clique : cliquesOf_[piece])
        needy_[piece] += excess_[clique] > 0;
      if (needy_[piece] > 0 && canBeHosted(piece))
        queue_.push({priceOf(piece), piece});
    }
  }

  bool canBeHosted(PieceIndex piece) const {
    if (!step_.buffers[timeline_.piece(piece).buffer].frames.empty())
      return false; // given
    const std::span<const Use> uses = timeline_.usesOf(piece);
    return std::none_of(uses.begin(), uses.end(), [&](const Use &use) {
      const NodeKind kind = step_.nodes[use.node].kind;
      return kind == NodeKind::Memcpy || kind == NodeKind::ChildGraph;
    });
  }

  double priceOf(PieceIndex piece) const { return prices_[piece] / needy_[piece]; }

  /// Takes pages until the piece is used up or one of its cliques has enough.
  void take(PieceIndex piece) {
    std::int64_t pages = timeline_.piece(piece).pageCount - hosted_[piece];
    for (std::size_t clique : cliquesOf_[piece])
      if (excess_[clique] > 0)
        pages = std::min(pages, excess_[clique]);
    hosted_[piece] += static_cast<std::uint32_t>(pages);
    taken_.push_back(piece);
    for (std::size_t clique : cliquesOf_[piece]) {
      const bool wasOver = excess_[clique] > 0;
      excess_[clique] -= pages;
      if (wasOver && excess_[clique] <= 0)
        for (PieceIndex member : cliques_[clique].pieces)
          --needy_[member];
    }
    if (needy_[piece] > 0 && hosted_[piece] < timeline_.piece(piece).pageCount)
      queue_.push({priceOf(piece), piece});
  }

  /// What was taken early may have become superfluous by what was taken later for other cliques.
  void giveBack() {
    for (auto piece = taken_.rbegin(); piece != taken_.rend(); ++piece) {
      std::int64_t pages = hosted_[*piece];
      for (std::size_t clique : cliquesOf_[*piece])
        pages = std::min(pages, std::max<std::int64_t>(0, -excess_[clique]));
      hosted_[*piece] -= static_cast<std::uint32_t>(pages);
      for (std::size_t clique : cliquesOf_[*piece])
        excess_[clique] += pages;
    }
  }

  const Description &step_;
  const Timeline &timeline_;
  const std::vector<Clique> &cliques_;
  const PagePrices &prices_;
  std::vector<std::int64_t> excess_; ///< by clique: pages too many, negative where there is room
  IndexedVector<PieceIndex, std::vector<std::size_t>> cliquesOf_;
  IndexedVector<PieceIndex, std::uint32_t> hosted_;
  IndexedVector<PieceIndex, std::uint32_t> needy_; ///< of its cliques, those that have too many pages still
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_; ///< equals: the first piece first
  std::vector<PieceIndex> taken_;
};

/// Nodes that touch more private pages than there are frames.
std::vector<NodeIndex> nodesBeyond(const Timeline &timeline, std::uint64_t frames) {
  std::vector<NodeIndex> nodes;
  for (NodeIndex node = 0; node < timeline.nodeCount(); ++node)
    if (timeline.workingSetPages(node) > frames)
      nodes.push_back(node);
  return nodes;
}

} // namespace

std::vector<Clique> wideNodes(const Timeline &timeline, std::uint64_t frames) {
  std::vector<Clique> cliques;
  for (NodeIndex node : nodesBeyond(timeline, frames)) {
    cliques.push_back({{}, frames});
    for (std::uint32_t position : timeline.usesAt(node))
      cliques.back().pieces.push_back(timeline.use(position).piece);
  }
  return cliques;
}

PagePrices hostingPrices(const Timeline &timeline, std::uint64_t frames, const Machine &machine) {
  const Prices prices(timeline, frames, machine);
  PagePrices result;
  for (std::size_t i = 0; i < timeline.pieces().size(); ++i)
    result.add(prices.ofPage(static_cast<PieceIndex>(i)));
  return result;
}

std::optional<std::size_t> hostExcess(Description &step, const Timeline &timeline, const std::vector<Clique> &cliques,
                                      const PagePrices &prices) {
  for (Buffer &buffer : step.buffers)
    if (buffer.frames.empty())
      buffer.hosted.clear();
  Excess excess(step, timeline, cliques, prices);
  const IndexedVector<PieceIndex, std::uint32_t> hosted = excess.run();
  for (std::size_t i = 0; i < hosted.size(); ++i) {
    const PieceIndex index = static_cast<PieceIndex>(i);
    const Piece &piece = timeline.piece(index);
    if (hosted[index] == 0)
      continue;
    // From its front: pieces of one buffer that cost the same are taken one after the other, and so make one range.
    const Range range{piece.firstPage * step.pageBytes, std::min(hosted[index] * step.pageBytes, piece.bytes)};
    std::vector<Range> &ranges = step.buffers[piece.buffer].hosted;
    if (!ranges.empty() && ranges.back().end() == range.offset)
      ranges.back().size += range.size;
    else
      ranges.push_back(range);
  }
  return excess.uncovered();
}

std::optional<NodeIndex> hostExcess(Description &step, const Timeline &timeline, std::uint64_t frames,
                                    const Machine &machine) {
  if (const std::optional<std::size_t> clique =
          hostExcess(step, timeline, wideNodes(timeline, frames), hostingPrices(timeline, frames, machine)))
    return nodesBeyond(timeline, frames)[*clique];
  return std::nullopt;
}

} // namespace pumpgraph
