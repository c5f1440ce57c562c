// SPDX-License-Identifier: Apache-2.0
/// \file
/// The pieces as they are at the node that the pass has reached.
#pragma once

#include "passes/analysis/Timeline.h"
#include "passes/plan/allocate/Draft.h"
#include "passes/plan/allocate/FrameGroups.h"
#include "passes/plan/allocate/FramePlanner.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace pumpgraph {

struct PieceState {
  std::size_t nextUse = 0; ///< position among the piece's uses
  bool isPlaced = false;
  bool hasValue = false;
  bool isWritten = false;         ///< by a node of this step
  std::vector<GroupIndex> groups; ///< where its pages live, by page
};

class PieceStates {
public:
  /// Both are referred to.
  PieceStates(const Timeline &timeline, const DraftStart &start)
      : timeline_(timeline), start_(start), states_(timeline.pieces().size()) {}

  PieceState &operator[](PieceIndex piece) { return states_[piece]; }
  const PieceState &operator[](PieceIndex piece) const { return states_[piece]; }
  std::size_t size() const { return states_.size(); }

  bool isResident(PieceIndex piece) const { return start_.boundary[piece] != BoundaryState::Away; }
  bool isMirrored(PieceIndex piece) const { return start_.boundary[piece] == BoundaryState::Mirrored; }

  /// The node of the piece's next use; the boundary if that is when a resident piece must be back.
  std::uint32_t nextUseOf(PieceIndex piece) const {
    const std::span<const Use> uses = usesToCome(piece);
    if (!uses.empty())
      return uses.front().node;
    return isResident(piece) ? timeline_.nodeCount() : neverUsed;
  }
  bool isUsedAt(PieceIndex piece, NodeIndex node) const { return nextUseOf(piece) == node; }
  std::span<const Use> usesToCome(PieceIndex piece) const {
    return timeline_.usesOf(piece).subspan(states_[piece].nextUse);
  }

  /// Whether the part's contents, on the device now, would be lost if they were not copied to the host.
  bool mustBeSaved(const Part &part) const {
    return !part.hostCurrent && states_[part.piece].hasValue && nextUseNeedsValue(part.piece);
  }
  bool nextUseNeedsValue(PieceIndex piece) const {
    const std::span<const Use> uses = usesToCome(piece);
    return uses.empty() ? isResident(piece) : uses.front().needsValue();
  }

  /// Whether the piece is to be away before its next use.
  bool leavesAnyway(PieceIndex piece) const {
    const std::span<const std::uint8_t> leaves = leavesToCome(piece);
    return !leaves.empty() && leaves.front() != 0;
  }
  /// By use to come. Empty: never.
  std::span<const std::uint8_t> leavesToCome(PieceIndex piece) const {
    if (start_.leaves.empty())
      return {};
    const Piece &uses = timeline_.piece(piece);
    return std::span(start_.leaves)
        .subspan(uses.usesBegin, uses.usesEnd - uses.usesBegin)
        .subspan(states_[piece].nextUse);
  }

  double startUs(std::uint32_t node) const {
    return node == timeline_.nodeCount() ? timeline_.times().totalUs : timeline_.times().startUs[node];
  }

  PageRun pagesOf(const Group &group, const Part &part) const {
    const Piece &piece = timeline_.piece(part.piece);
    return {piece.buffer, piece.firstPage + part.firstPage, group.frameCount};
  }

  /// Whether the group has, or had, pages that the piece must be apart from.
  bool isKeptOut(PieceIndex piece, const Group &group) const {
    const std::vector<std::uint32_t> &apart = timeline_.apartGroupsOf(piece);
    return std::any_of(apart.begin(), apart.end(), [&](std::uint32_t each) {
      return std::binary_search(group.apart.begin(), group.apart.end(), each);
    });
  }

  /// Whether two pieces of one buffer are used by the same nodes in the same ways.
  bool areAlike(PieceIndex a, PieceIndex b) const {
    const std::span<const Use> first = timeline_.usesOf(a), second = timeline_.usesOf(b);
    return timeline_.piece(a).buffer == timeline_.piece(b).buffer && start_.boundary[a] == start_.boundary[b] &&
           isPartialPage(a) == isPartialPage(b) && timeline_.apartGroupsOf(a) == timeline_.apartGroupsOf(b) &&
           std::equal(first.begin(), first.end(), second.begin(), second.end(), [](const Use &x, const Use &y) {
             return x.node == y.node && x.writes == y.writes && x.overwrites == y.overwrites;
           });
  }

private:
  bool isPartialPage(PieceIndex piece) const {
    return timeline_.piece(piece).bytes < timeline_.piece(piece).pageCount * timeline_.pageBytes();
  }

  const Timeline &timeline_;
  const DraftStart &start_;
  IndexedVector<PieceIndex, PieceState> states_;
};

} // namespace pumpgraph
