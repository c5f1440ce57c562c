// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/HostedPages.h"

#include "passes/analysis/HostedAccess.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace pumpgraph {

namespace {

/// Covers what every wide node has too many of: a page of a piece covers one page of each wide node that uses the
/// piece, at the price of the piece's accesses over the link. That is a weighted multicover, for which taking what is
/// cheapest for each page it covers is near the best that can be had in reasonable time.
class Excess {
public:
  Excess(const Description &step, const Timeline &timeline, std::uint64_t frames, const Machine &machine)
      : step_(step), timeline_(timeline), machine_(machine), excess_(timeline.nodeCount(), 0),
        isWide_(timeline.nodeCount(), false), hosted_(timeline.pieces().size(), 0), users_(timeline.pieces().size(), 0),
        pagePrice_(timeline.pieces().size(), 0) {
    for (NodeIndex node = 0; node < timeline.nodeCount(); ++node) {
      const std::uint64_t pages = timeline.workingSetPages(node);
      excess_[node] = static_cast<std::int64_t>(pages) - static_cast<std::int64_t>(frames);
      isWide_[node] = excess_[node] > 0;
    }
  }

  /// Of each piece, how many pages are hosted.
  IndexedVector<PieceIndex, std::uint32_t> run() {
    price();
    while (!queue_.empty()) {
      const auto [price, piece] = queue_.top();
      queue_.pop();
      if (users_[piece] == 0)
        continue;
      if (priceOf(piece) > price) { // fewer nodes need it than when it was queued
        queue_.push({priceOf(piece), piece});
        continue;
      }
      take(piece);
    }
    giveBack();
    return std::move(hosted_);
  }

  /// After run(): a node that still touches too much.
  std::optional<NodeIndex> uncovered() const {
    const auto found = std::find_if(excess_.begin(), excess_.end(), [](std::int64_t pages) { return pages > 0; });
    if (found == excess_.end())
      return std::nullopt;
    return static_cast<NodeIndex>(found - excess_.begin());
  }

private:
  using Entry = std::pair<double, PieceIndex>;

  void price() {
    for (std::size_t i = 0; i < timeline_.pieces().size(); ++i) {
      const PieceIndex piece = static_cast<PieceIndex>(i);
      const std::uint64_t bytes = timeline_.piece(piece).bytes;
      for (const Use &use : timeline_.usesOf(piece)) {
        users_[piece] += isWide_[use.node];
        pagePrice_[piece] += linkUs({use.readsOld ? bytes : 0, use.writes ? bytes : 0}, machine_);
      }
      pagePrice_[piece] /= timeline_.piece(piece).pageCount;
      if (users_[piece] > 0 && canBeHosted(piece))
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

  double priceOf(PieceIndex piece) const { return pagePrice_[piece] / users_[piece]; }

  /// Calls `visit(node)` for every wide node that uses the piece.
  template <typename Visit> void forEachWideUser(PieceIndex piece, Visit visit) const {
    for (const Use &use : timeline_.usesOf(piece))
      if (isWide_[use.node])
        visit(use.node);
  }

  /// Takes pages until the piece is used up or one of its users has enough.
  void take(PieceIndex piece) {
    std::int64_t pages = timeline_.piece(piece).pageCount - hosted_[piece];
    forEachWideUser(piece, [&](NodeIndex node) {
      if (excess_[node] > 0)
        pages = std::min(pages, excess_[node]);
    });
    hosted_[piece] += static_cast<std::uint32_t>(pages);
    taken_.push_back(piece);
    forEachWideUser(piece, [&](NodeIndex node) {
      const bool wasOver = excess_[node] > 0;
      excess_[node] -= pages;
      if (wasOver && excess_[node] <= 0)
        for (std::uint32_t position : timeline_.usesAt(node))
          --users_[timeline_.use(position).piece];
    });
    if (users_[piece] > 0 && hosted_[piece] < timeline_.piece(piece).pageCount)
      queue_.push({priceOf(piece), piece});
  }

  /// What was taken early may have become superfluous by what was taken later for other nodes.
  void giveBack() {
    for (auto piece = taken_.rbegin(); piece != taken_.rend(); ++piece) {
      std::int64_t pages = hosted_[*piece];
      forEachWideUser(*piece,
                      [&](NodeIndex node) { pages = std::min(pages, std::max<std::int64_t>(0, -excess_[node])); });
      hosted_[*piece] -= static_cast<std::uint32_t>(pages);
      forEachWideUser(*piece, [&](NodeIndex node) { excess_[node] += pages; });
    }
  }

  const Description &step_;
  const Timeline &timeline_;
  const Machine &machine_;
  std::vector<std::int64_t> excess_; ///< by node: pages too many, negative where there is room
  std::vector<bool> isWide_;         ///< by node: began with some
  IndexedVector<PieceIndex, std::uint32_t> hosted_;
  IndexedVector<PieceIndex, std::uint32_t> users_; ///< nodes that have too many pages still
  IndexedVector<PieceIndex, double> pagePrice_;    ///< time on the link over the whole step, microseconds
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_; ///< equals: the first piece first
  std::vector<PieceIndex> taken_;
};

} // namespace

std::optional<NodeIndex> hostExcess(Description &step, const Timeline &timeline, std::uint64_t frames,
                                    const Machine &machine) {
  for (Buffer &buffer : step.buffers)
    if (buffer.frames.empty())
      buffer.hosted.clear();
  Excess excess(step, timeline, frames, machine);
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

} // namespace pumpgraph
