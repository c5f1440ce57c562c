// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/price/HostedPages.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Indices.h"
#include "passes/plan/Knobs.h"
#include "passes/plan/price/HostedCover.h"
#include "pumpgraph/graph/Ranges.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace pumpgraph {

namespace {

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

  HostingPrices::Page ofPage(PieceIndex piece) const {
    const std::uint64_t bytes = timeline_.piece(piece).bytes;
    double accessUs = 0;
    for (const Use &use : timeline_.usesOf(piece))
      accessUs += use.slowdown * linkUs({use.readsOld ? bytes : 0, use.writes ? bytes : 0}, machine_);
    // Where accesses cost the same, fewer pages are better.
    const double us =
        std::max(0.0, accessUs - knobs::worthOfMove * movesUs(piece)) + knobs::worthOfMove * copyUs({bytes, 0});
    const double pages = timeline_.piece(piece).pageCount;
    return {us / pages, (us - accessUs) / pages};
  }

private:
  /// By node: of what is alive and not used, the part that there is no room for.
  static std::vector<double> shareAway(const Timeline &timeline, std::uint64_t frames) {
    std::vector<std::uint64_t> began(timeline.nodeCount() + 1, 0), ended(timeline.nodeCount() + 1, 0);
    for (const PieceIndex index : indicesOf(timeline.pieces())) {
      const Piece &piece = timeline.piece(index);
      const std::span<const Use> uses = timeline.usesOf(index);
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

  double copyUs(const Traffic &traffic) const { return machine_.hostedShare * linkUs(traffic, machine_); }

  /// How long copies take for each time that the piece has to leave between two uses, as far as it has to, and for
  /// coming from another address, and going on at one.
  double movesUs(PieceIndex piece) const {
    const std::uint64_t bytes = timeline_.piece(piece).bytes;
    const std::span<const Use> uses = timeline_.usesOf(piece);
    if (uses.empty())
      return 0;
    double us = timeline_.piece(piece).continues ? copyUs({bytes, 0}) : 0;
    bool isDirty = !timeline_.piece(piece).hasValueBefore();
    const auto leave = [&](double part) {
      us += part * copyUs({bytes, isDirty ? bytes : 0});
      isDirty = isDirty && part < 0.5;
    };
    for (std::size_t i = 1; i < uses.size(); ++i) {
      isDirty |= uses[i - 1].writes;
      if (uses[i].needsValue())
        leave(away_.of(uses[i - 1].node + 1, uses[i].node));
    }
    isDirty |= uses.back().writes;
    if (timeline_.piece(piece).isContinued && isDirty)
      us += copyUs({0, bytes});
    if (timeline_.piece(piece).liveOut)
      leave(std::max(away_.of(0, uses.front().node), away_.of(uses.back().node + 1, timeline_.nodeCount())));
    return us;
  }

  const Timeline &timeline_;
  const Machine &machine_;
  RangeMax away_;
};

/// Whether the operands of such nodes stay on the device.
bool needsDevice(NodeKind kind) {
  return kind == NodeKind::Memcpy || kind == NodeKind::ChildGraph;
}

/// Operands of copies and of child graphs stay on the device, and so do what has frames already and what has to be
/// there between replays.
IndexedVector<PieceIndex, bool> canBeHosted(const Description &step, const Timeline &timeline) {
  IndexedVector<PieceIndex, bool> can;
  for (const PieceIndex piece : indicesOf(timeline.pieces())) {
    const std::span<const Use> uses = timeline.usesOf(piece);
    const Buffer &buffer = step.buffers[timeline.piece(piece).buffer];
    can.add(buffer.frames.empty() && !buffer.isPresent && std::none_of(uses.begin(), uses.end(), [&](const Use &use) {
              return needsDevice(step.nodes[use.node].kind);
            }));
  }
  return can;
}

/// Nodes that touch more private pages than there are frames.
std::vector<NodeIndex> nodesBeyond(const Timeline &timeline, std::uint64_t frames) {
  std::vector<NodeIndex> nodes;
  for (NodeIndex node = 0; node < timeline.nodeCount(); ++node)
    if (timeline.workingSetPages(node) > frames)
      nodes.push_back(node);
  return nodes;
}

/// Hosts so many pages of each piece, from its front: pieces of one buffer that cost the same are taken one after the
/// other, and so make one range.
void host(Description &step, const Timeline &timeline, const IndexedVector<PieceIndex, std::uint32_t> &pages) {
  for (const PieceIndex index : indicesOf(pages)) {
    const Piece &piece = timeline.piece(index);
    std::vector<Range> &hosted = step.buffers[piece.buffer].hosted;
    if (pages[index] > 0)
      hosted = with(hosted, {piece.firstPage * step.pageBytes, std::min(pages[index] * step.pageBytes, piece.bytes)});
  }
}

} // namespace

std::vector<bool> canBeHostedAsAWhole(const Description &step) {
  std::vector<bool> can;
  for (const Buffer &buffer : step.buffers)
    can.push_back(buffer.isPrivate && buffer.frames.empty() && !buffer.isPresent && buffer.size > 0);
  for (const Node &node : step.nodes)
    if (needsDevice(node.kind))
      for (const Access &access : node.accesses)
        can[access.buffer] = false;
  return can;
}

std::vector<FrameLimit> wideNodes(const Timeline &timeline, std::uint64_t frames) {
  std::vector<FrameLimit> limits;
  for (NodeIndex node : nodesBeyond(timeline, frames)) {
    limits.push_back({{}, frames});
    for (std::uint32_t position : timeline.usesAt(node))
      limits.back().pieces.push_back(timeline.use(position).piece);
  }
  return limits;
}

HostingPrices hostingPrices(const Timeline &timeline, std::uint64_t frames, const Machine &machine) {
  const Prices prices(timeline, frames, machine);
  HostingPrices result{{}, machine};
  for (const PieceIndex piece : indicesOf(timeline.pieces()))
    result.pages.add(prices.ofPage(piece));
  return result;
}

std::optional<std::size_t> hostExcess(Description &step, const Timeline &timeline,
                                      const std::vector<FrameLimit> &limits, const HostingPrices &prices) {
  for (const Piece &piece : timeline.pieces())
    if (Buffer &buffer = step.buffers[piece.buffer]; buffer.frames.empty())
      buffer.hosted = without(buffer.hosted, {piece.firstPage * step.pageBytes, piece.pageCount * step.pageBytes});
  const IndexedVector<PieceIndex, bool> can = canBeHosted(step, timeline);
  HostedCover cover(timeline, limits, prices, can);
  cover.cover();
  cover.balance();
  host(step, timeline, cover.hosted());
  return cover.uncovered();
}

std::optional<NodeIndex> hostExcess(Description &step, const Timeline &timeline, std::uint64_t frames,
                                    const Machine &machine) {
  if (const std::optional<std::size_t> limit =
          hostExcess(step, timeline, wideNodes(timeline, frames), hostingPrices(timeline, frames, machine)))
    return nodesBeyond(timeline, frames)[*limit];
  return std::nullopt;
}

std::uint64_t leastHostedBytes(Description step, std::uint64_t budgetBytes) {
  const Timeline timeline(step);
  const std::uint64_t pages = budgetBytes / step.pageBytes;
  HostingPrices allAlike;
  allAlike.pages = decltype(allAlike.pages)(timeline.pieces().size(), {.aloneUs = 1, .besideUs = 0});
  const std::vector<FrameLimit> limits = wideNodes(timeline, pages - std::min(pages, timeline.exclusivePages()));
  const IndexedVector<PieceIndex, bool> can = canBeHosted(step, timeline);
  HostedCover cover(timeline, limits, allAlike, can);
  cover.cover();
  host(step, timeline, cover.hosted());
  return hostedBytes(step);
}

} // namespace pumpgraph
