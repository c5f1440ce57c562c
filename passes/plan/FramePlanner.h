// SPDX-License-Identifier: Apache-2.0
/// \file
/// One pass over a step in node order that gives every page its frame and decides who leaves when
/// (docs/design/planner.md).
#pragma once

#include "passes/analysis/Machine.h"
#include "passes/analysis/Order.h"
#include "passes/analysis/Timeline.h"

#include <tl/expected.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace pumpgraph {

/// A node of a plan under construction: captured nodes keep their index, added ones follow after the last of them in
/// the order in which they were decided. An added node never precedes a smaller one.
using DraftNode = std::uint32_t;

/// Pages of one buffer.
struct PageRun {
  BufferIndex buffer = 0;
  std::uint32_t firstPage = 0;
  std::uint32_t pageCount = 0;
};

struct DraftTransfer {
  NodeKind kind = NodeKind::Evict; ///< or Prefetch
  PageRun pages;
  std::vector<PageRun> rows = {}; ///< more that the same copy moves, of as many bytes each (joinRows())
};

/// The largest piece and a partial page after it.
inline std::uint32_t mostPagesOfTransfer(const Timeline &timeline) {
  return timeline.mostPagesOfPiece() + 1;
}

struct DraftEdge {
  DraftNode before = 0;
  DraftNode after = 0;
};

/// Contents given up without a copy although their page will be used again.
struct DraftDiscard {
  PageRun pages;
  std::vector<DraftNode> after;  ///< last events of the page that leaves
  std::vector<DraftNode> before; ///< first events of the page that comes
};

/// Where a live piece is at the step boundary.
enum class BoundaryState : std::uint8_t {
  Away,     ///< in host memory
  Resident, ///< on the device
  Mirrored  ///< on the device, and its host copy is good too
};
using BoundaryStates = IndexedVector<PieceIndex, BoundaryState>;

/// Decisions, before anything is ordered in time.
struct Draft {
  NodeIndex capturedCount = 0;
  std::vector<DraftTransfer> transfers; ///< DraftNode capturedCount + position
  std::vector<DraftEdge> edges;         ///< completion that the captured graph does not imply; may repeat
  /// Completion that nothing needs: transfers that wait so that others have the link to themselves (Deferral.h). An
  /// added node may precede a smaller one here.
  std::vector<DraftEdge> deferrals;
  std::vector<DraftDiscard> discards;
  std::vector<std::vector<std::int32_t>> frames; ///< by buffer, then page
  BoundaryStates boundary;

  // How the pieces fared, for the next attempt.
  IndexedVector<PieceIndex, std::uint32_t> fetchedPages; ///< counted each time
  IndexedVector<PieceIndex, std::uint32_t> strayPages;   ///< of these, where they were to stay
  std::vector<std::uint32_t> leftAt; ///< by position of a use: the node that the piece gave way to before it
  IndexedVector<PieceIndex, bool> cameForBoundary; ///< after the last node, only to be on the device then
  IndexedVector<PieceIndex, bool> leftUnwritten;   ///< the frames were given up before anything was written to them
  /// What it took: groups used, or looked at for residents, and, four times as dear, groups priced.
  std::uint64_t effort = 0;
};

/// What is decided before the pass.
struct DraftStart {
  BoundaryStates boundary;
  /// Pieces that choose their frames before all others do, in this order.
  std::vector<PieceIndex> first;
  /// By position of a use: whether its piece is to be away before it. Empty: nothing is chosen.
  std::vector<std::uint8_t> leaves;
};

/// No frames for the pieces of a node; if they were to choose before the pass, of the widest that uses the one which
/// found none. Without a node: none for the pieces that are on the device at the step boundary.
struct Stuck {
  std::optional<NodeIndex> node;
  std::uint64_t effort = 0; ///< as in Draft
};

/// How costs are weighed. Variants of a plan differ in these.
struct Tuning {
  /// Weight of a hand-over that may come too late against a transfer.
  double slackWeight = 4.0;
  /// How many transfers are expected to queue before one that becomes possible.
  double queueDepth = 16.0;
  /// Whether groups that are needed sooner are looked at too.
  bool looksFurther = false;
  /// Cost of an edge the captured graph does not have, microseconds.
  double edgeUs = 0.01;

  bool operator==(const Tuning &) const = default;

  /// Cost of a hand-over that takes `transferUs` when there are `availableUs` for it: falls smoothly, so that more
  /// time is always better.
  double latenessUs(double transferUs, double availableUs) const {
    if (transferUs <= 0)
      return 0;
    const double queueUs = queueDepth * transferUs;
    return slackWeight * transferUs * queueUs / (queueUs + (availableUs > 0 ? availableUs : 0));
  }
};

/// A frame for every page of a piece, so that no two pieces some node uses together share one; by piece. Empty: free.
using PieceFrames = IndexedVector<PieceIndex, std::vector<std::int32_t>>;

/// What the planner may not choose, because other steps of the session, or whoever uses present buffers, rely on it. It
/// numbers frames so that exclusive pages have the first ones.
struct GivenBoundary {
  bool isShared = false; ///< with other steps; else only states of present buffers are given
  IndexedVector<PieceIndex, bool> isGiven;
  BoundaryStates states;             ///< away where nothing is given
  PieceFrames homes;                 ///< empty where nothing is given, or no frames are
  std::vector<std::int32_t> numbers; ///< of the planner's frames, in the plan
  std::uint32_t ownFrom = 0;         ///< the frames from here on are nobody else's

  bool hasHome(PieceIndex piece) const { return !homes[piece].empty(); }
};

struct PlannerInput {
  const Description &captured;
  const Timeline &timeline;
  const Order &order; ///< of `captured`
  const Machine &machine;
  std::uint64_t frameCount = 0; ///< for exclusive and private pages together
  const GivenBoundary &given;
  std::vector<bool> keepsHostCopy = {}; ///< by buffer, for managed memory: see keepHostCopies(); empty: all do
  const std::function<void(double)> *foundPlan = nullptr; ///< as in PlanOptions

  bool isForManaged() const { return !keepsHostCopy.empty(); }
  /// Whether a piece that came from the host may leave for nothing until it is written.
  bool leavesClean(PieceIndex piece) const { return !isForManaged() || keepsHostCopy[timeline.piece(piece).buffer]; }
  /// Whether what leaves has to wait for the use: it may write, or leaving is not copying, as in managed memory.
  bool delaysLeaving(const Use &use) const { return use.writes || isForManaged(); }
  /// In managed memory what is on the device between steps has a good host copy if it is read mostly, and cannot have
  /// one otherwise; elsewhere nothing changes.
  void settleCopies(BoundaryStates &boundary) const;
};

/// Fails when some node's pieces cannot be brought together in the frames left: every page keeps one frame for the
/// whole step. `homes` fixes frames beforehand, in place of those that are given.
tl::expected<Draft, Stuck> draftPlan(const PlannerInput &input, const DraftStart &start, const Tuning &tuning,
                                     const PieceFrames *homes = nullptr);

/// The draft in which nothing makes room for anything: the frames must suffice for `timeline.peakPages()`. Its only
/// transfers are of values that go on at another address, in host memory. Nothing where pages that must be apart find
/// no frames.
std::optional<Draft> draftWithoutTransfers(const PlannerInput &input);

/// Frames for all pages chosen by who must not meet whom alone; empty if that fails.
std::optional<PieceFrames> colourPieces(const PlannerInput &input);

} // namespace pumpgraph
