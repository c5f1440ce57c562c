// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/PieceHistory.h"

#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <span>

namespace pumpgraph {
namespace {

/// In a captured step what runs again is given, like all else; in a planned one the plan has chosen it.
bool isCaptured(const Description &step, const Node &node) {
  return !isAdded(node.kind) && (node.kind != NodeKind::Rematerialize || step.stage == Stage::Captured);
}
/// What one node does to one piece, as far as this kind of bound believes it.
struct Touch {
  NodeIndex node = 0;
  std::uint64_t neededBytes = 0;  ///< of the old value, on the device before the node runs
  std::uint64_t writtenBytes = 0; ///< certainly new afterwards
  bool mayReplace = false;        ///< the old value may be gone afterwards without having been read
  bool isOnDevice = false;        ///< certainly afterwards, without a host copy
  bool writes = false;
  bool finds = false;     ///< some byte that it does not certainly overwrite
  bool renewsAll = false; ///< every byte of the piece is of the node's version afterwards
};

/// Builds the history of every piece, segment by segment.
class Histories {
public:
  Histories(const HistoryInputs &inputs, const std::vector<Segment> &segments)
      : description_(inputs.description), kind_(inputs.kind), holdsOperands_(inputs.holdsOperands),
        keepsHostCopy_(inputs.keepsHostCopy), graph_(inputs.graph), segments_(segments), timeline_(inputs.timeline),
        shares_(inputs.shares), prices_(inputs.prices), order_(inputs.graph.order()) {}

  std::vector<PieceHistory> build() {
    std::vector<PieceHistory> histories;
    const std::vector<std::vector<Touch>> touches = collectTouches();
    histories.reserve(touches.size());
    for (std::size_t p = 0; p < touches.size(); ++p) {
      const Piece &piece = timeline_.piece(static_cast<PieceIndex>(p));
      PieceHistory history{bytesOf(static_cast<PieceIndex>(p)), piece.liveIn, piece.liveOut, {}};
      for (std::size_t begin = 0; begin < touches[p].size();) {
        const std::uint32_t segment = segmentOf(touches[p][begin].node);
        std::size_t end = begin + 1;
        while (end < touches[p].size() && touches[p][end].node <= segments_[segment].last)
          ++end;
        history.visits.push_back(visitOf(segment, std::span(touches[p]).subspan(begin, end - begin), history.bytes));
        begin = end;
      }
      histories.push_back(std::move(history));
    }
    return histories;
  }

private:
  std::uint32_t segmentOf(NodeIndex node) const {
    const auto endsBefore = [](const Segment &segment, NodeIndex n) { return segment.last < std::int64_t{n}; };
    return static_cast<std::uint32_t>(std::lower_bound(segments_.begin(), segments_.end(), node, endsBefore) -
                                      segments_.begin());
  }

  std::vector<std::vector<Touch>> collectTouches() const {
    std::vector<std::vector<Touch>> touches(timeline_.pieces().size());
    for (NodeIndex n = 0; n < graph_.nodes.size(); ++n)
      for (std::uint32_t position : timeline_.usesAt(graph_.nodes[n])) {
        const Use &use = timeline_.use(position);
        Touch touch = kind_ == BoundKind::May ? mayTouch(n, use) : mustTouch(n, use);
        touch.finds = finds(use);
        touch.renewsAll = renewsAll(use);
        if (touch.neededBytes > 0 || touch.mayReplace || touch.writes)
          touches[static_cast<std::size_t>(use.piece)].push_back(touch);
      }
    return touches;
  }

  /// Of so many bytes of a piece, those that count.
  std::uint64_t counted(PieceIndex index, std::uint64_t bytes) const {
    return shares_[index] < 1 ? static_cast<std::uint64_t>(shares_[index] * static_cast<double>(bytes)) : bytes;
  }
  std::uint64_t bytesOf(PieceIndex index) const { return counted(index, timeline_.piece(index).bytes); }

  /// As the planner and the checker see it: whole pages, and whatever may happen counts.
  Touch mayTouch(NodeIndex node, const Use &use) const {
    const std::uint64_t bytes = bytesOf(use.piece);
    return {node,
            use.readsOld ? bytes : 0,
            use.writes ? bytes : 0,
            use.writes && !use.readsOld,
            holdsOperands_ && !keepsHostCopy_[timeline_.piece(use.piece).buffer],
            use.writes};
  }

  bool finds(const Use &use) const {
    const Piece &piece = timeline_.piece(use.piece);
    const Range whole{piece.firstPage * description_.pageBytes, piece.bytes};
    return std::ranges::any_of(description_.nodes[use.node].accesses, [&](const Access &access) {
      return access.buffer == piece.buffer && reliableMust(access) != modeWrite && access.range.offset < whole.end() &&
             whole.offset < access.range.end();
    });
  }

  /// Whether one access of the node covers the piece, and all that it covers counts as written. What another node has
  /// left there can be made again no more.
  bool renewsAll(const Use &use) const {
    const Piece &piece = timeline_.piece(use.piece);
    const Range whole{piece.firstPage * description_.pageBytes, piece.bytes};
    return std::ranges::any_of(description_.nodes[use.node].accesses, [&](const Access &access) {
      const bool isBelieved = kind_ == BoundKind::May || access.evidence != Evidence::Allocated;
      const std::uint8_t mode = kind_ == BoundKind::May ? reliableMay(access) : reliableMust(access);
      return access.buffer == piece.buffer && isBelieved && (mode & modeWrite) != 0 &&
             access.range.offset <= whole.offset && whole.end() <= access.range.end();
    });
  }

  /// What certainly happens: the bytes that must be read or written, and any possible write may replace the value.
  Touch mustTouch(NodeIndex node, const Use &use) const {
    const Piece &piece = timeline_.piece(use.piece);
    const std::uint64_t begin = piece.firstPage * description_.pageBytes, end = begin + piece.bytes;
    Touch touch{node, 0, 0, use.writes, false, use.writes};
    for (const Access &access : description_.nodes[use.node].accesses) {
      if (access.buffer != piece.buffer || access.range.offset >= end || access.range.end() <= begin)
        continue;
      const std::uint64_t bytes = std::min(end, access.range.end()) - std::max(begin, access.range.offset);
      if (reliableMust(access) & modeRead)
        touch.neededBytes = std::max(touch.neededBytes, bytes);
      if ((reliableMust(access) & modeWrite) != 0 && access.evidence != Evidence::Allocated) // for that writes less
        touch.writtenBytes = std::max(touch.writtenBytes, bytes);
    }
    touch.neededBytes = counted(use.piece, touch.neededBytes);
    touch.writtenBytes = counted(use.piece, touch.writtenBytes);
    return touch;
  }

  /// A need counts if its node comes, in every order, before every other node of the segment that may replace the
  /// value.
  Visit visitOf(std::uint32_t segment, std::span<const Touch> touches, std::uint64_t pieceBytes) const {
    Visit visit{segment, touches.front().neededBytes, 0, false, segments_[segment].isAlone};
    visit.finds = touches.front().finds;
    for (const Touch &touch : touches) {
      visit.writes = visit.writes || touch.writes;
      visit.renewsAll = visit.renewsAll || touch.renewsAll;
      if (touch.writes)
        visit.price = std::min(visit.price, prices_[touch.node]);
      visit.writtenBytes = std::max(visit.writtenBytes, touch.writtenBytes);
      visit.isOnDevice = visit.isOnDevice || touch.isOnDevice;
      const bool isOther = touch.node != touches.front().node;
      if (visit.neededBytes > 0 && isOther && touch.mayReplace &&
          !order_.completesBefore(touches.front().node, touch.node))
        visit.neededBytes = 0;
    }
    visit.writesAll = visit.writtenBytes >= pieceBytes;
    return visit;
  }

  const Description &description_;
  BoundKind kind_;
  bool holdsOperands_;
  const std::vector<bool> &keepsHostCopy_;
  const CapturedGraph &graph_;
  const std::vector<Segment> &segments_;
  const Timeline &timeline_;
  const IndexedVector<PieceIndex, double> &shares_;
  const std::vector<std::size_t> &prices_; ///< by captured node
  Order order_;                            ///< of captured nodes
};

} // namespace

CapturedGraph::CapturedGraph(const Description &description) {
  std::vector<NodeIndex> compact(description.nodes.size(), 0);
  for (NodeIndex n = 0; n < description.nodes.size(); ++n) {
    if (!isCaptured(description, description.nodes[n]))
      continue;
    compact[n] = static_cast<NodeIndex>(nodes.size());
    nodes.push_back(n);
  }
  predecessors.resize(nodes.size());
  for (const Edge &edge : description.edges)
    if (isCaptured(description, description.nodes[edge.from]) && isCaptured(description, description.nodes[edge.to]))
      predecessors[compact[edge.to]].push_back(compact[edge.from]);
  std::vector<bool> isSink(nodes.size(), true);
  for (const std::vector<NodeIndex> &before : predecessors)
    for (NodeIndex n : before)
      isSink[n] = false;
  sinks_ = std::count(isSink.begin(), isSink.end(), true);
}

Order CapturedGraph::order() const {
  Order order;
  const std::vector<std::uint32_t> counts = successorCounts(predecessors);
  for (const std::vector<NodeIndex> &before : predecessors)
    order.append(before, counts);
  return order;
}

std::vector<PieceHistory> pieceHistories(const HistoryInputs &inputs, const std::vector<Segment> &segments) {
  return Histories(inputs, segments).build();
}

} // namespace pumpgraph
