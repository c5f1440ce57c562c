// SPDX-License-Identifier: Apache-2.0
/// \file
/// A plan under construction: what the allocator decides, before anything is ordered in time.
#pragma once

#include "passes/analysis/Index.h"
#include "passes/analysis/Timeline.h"

#include <cstdint>
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

/// How a piece fared, for the next attempt.
struct Fare {
  std::uint32_t fetchedPages = 0; ///< counted each time
  std::uint32_t strayPages = 0;   ///< of these, where they were to stay
  bool cameForBoundary = false;   ///< after the last node, only to be on the device then
  bool leftUnwritten = false;     ///< the frames were given up before anything was written to them
};

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

  IndexedVector<PieceIndex, Fare> fared;
  std::vector<std::uint32_t> leftAt; ///< by position of a use: the node that the piece gave way to before it
  /// What it took: groups used, or looked at for residents, and, four times as dear, groups priced.
  std::uint64_t effort = 0;
};

/// A frame for every page of a piece, so that no two pieces some node uses together share one; by piece. Empty: free.
using PieceFrames = IndexedVector<PieceIndex, std::vector<std::int32_t>>;

} // namespace pumpgraph
