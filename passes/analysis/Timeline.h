// SPDX-License-Identifier: Apache-2.0
/// \file
/// The dense view of a captured step that analyses and planner work on: private buffers cut into pieces, and who uses
/// each piece when.
#pragma once

#include "passes/analysis/Index.h"
#include "passes/analysis/Machine.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pumpgraph {

enum class PieceIndex : std::uint32_t {};

inline constexpr std::uint64_t defaultPieceBytes = std::uint64_t{32} << 20;

/// Whole pages of a buffer.
struct BufferPart {
  BufferIndex buffer = 0;
  Range range;
  friend bool operator==(const BufferPart &, const BufferPart &) = default;
};

/// Groups of pages, no two of which may have one frame: what a node of another step uses at once, say.
using ApartPages = std::vector<std::vector<BufferPart>>;

/// A run of whole pages of one private buffer: the unit of residency and transfer. Every access of the step covers
/// all pages of a piece or none, so a piece has one history.
struct Piece {
  BufferIndex buffer = 0;
  std::uint32_t firstPage = 0; ///< within the buffer
  std::uint32_t pageCount = 0;
  std::uint64_t bytes = 0; ///< whole pages, but for a partial last page of the buffer, which is a piece of its own
  bool liveIn = false;
  bool liveOut = false; ///< also set for every live-in piece: its value must be there again
  /// The value comes from, and goes on at, another address: through host memory, in the middle of the step.
  bool continues = false, isContinued = false;
  std::uint32_t usesBegin = 0;
  std::uint32_t usesEnd = 0;

  /// Whether there is one before the first use, and whether somebody wants it after the last.
  bool hasValueBefore() const { return liveIn || continues; }
  bool mustSurvive() const { return liveOut || isContinued; }
};

/// One node's touch of one piece, all its accesses taken together.
struct Use {
  NodeIndex node = 0;
  PieceIndex piece{};
  bool writes = false; ///< may write
  /// What was there before may matter: to read it, or to keep it where nothing is written. Not where nothing was there:
  /// then what writes first is not taken to read unless it certainly does.
  bool readsOld = false;
  bool certainlyReads = false;
  bool overwrites = false; ///< all accesses certainly write every byte of every page and read none before
  float slowdown = 1;      ///< of the accesses, the largest
  /// Whether the value has to be on the device. An access that may do nothing does not read the old value, but having
  /// it there keeps all that is on the device current.
  bool needsValue() const { return !overwrites; }
};

/// When all pieces are on the device: start and end of each node, microseconds.
struct InMemoryTimes {
  std::vector<double> startUs;
  std::vector<double> endUs;
  double totalUs = 0;
};

class Timeline {
public:
  /// `pieceBytes` is the largest piece, rounded to at least one page. Residency nodes and copies are ignored. Hosted
  /// pages belong to no piece; the time that nodes need for them is that on `machine`.
  explicit Timeline(const Description &captured, std::uint64_t pieceBytes = defaultPieceBytes,
                    const Machine &machine = {}, const ApartPages &apart = {});

  const IndexedVector<PieceIndex, Piece> &pieces() const { return pieces_; }
  const Piece &piece(PieceIndex index) const { return pieces_[index]; }

  /// A piece's uses, in node order.
  std::span<const Use> usesOf(PieceIndex index) const {
    const Piece &piece = pieces_[index];
    return std::span(uses_).subspan(piece.usesBegin, piece.usesEnd - piece.usesBegin);
  }
  /// Positions in the flat array of all uses, of the uses by `node`.
  std::span<const std::uint32_t> usesAt(NodeIndex node) const {
    return std::span(byNode_).subspan(nodeBegin_[node], nodeBegin_[node + 1] - nodeBegin_[node]);
  }
  const Use &use(std::uint32_t position) const { return uses_[position]; }

  /// Of ApartPages, the groups that the piece belongs to, ascending; and the pieces of a group.
  const std::vector<std::uint32_t> &apartGroupsOf(PieceIndex index) const { return apartGroups_[index]; }
  const std::vector<std::vector<PieceIndex>> &apartPieces() const { return apartPieces_; }

  NodeIndex nodeCount() const { return static_cast<NodeIndex>(nodeBegin_.size() - 1); }
  std::uint64_t pageBytes() const { return pageBytes_; }
  std::uint32_t mostPagesOfPiece() const { return mostPagesOfPiece_; }
  const InMemoryTimes &times() const { return times_; }

  /// Pages of all exclusive buffers: on the device at all times.
  std::uint64_t exclusivePages() const { return exclusivePages_; }
  /// Pages of private buffers that `node` touches.
  std::uint64_t workingSetPages(NodeIndex node) const;
  /// Frames the step needs when nothing moves, exclusive pages included.
  std::uint64_t peakPages() const { return peakPages_; }

  /// The nodes from which to which a piece occupies its frame when nothing moves, both included; `nodeCount()` means
  /// up to the step boundary. Empty for a piece that is neither used nor live.
  struct Life {
    NodeIndex first = 0;
    NodeIndex last = 0;
    bool fromBoundary = false; ///< occupied before node 0 already
  };
  std::optional<Life> lifeOf(PieceIndex index) const;

private:
  void cutPieces(const Description &captured, const ApartPages &apart);
  void groupPieces(const ApartPages &apart);
  void collectUses(const Description &captured);
  void sortUsesByNode(NodeIndex nodeCount);
  void countPeak();

  std::uint64_t pageBytes_ = 0;
  std::uint32_t mostPagesOfPiece_ = 0;
  IndexedVector<PieceIndex, Piece> pieces_;
  std::vector<PieceIndex> firstPieceOfBuffer_; ///< one more than there are buffers
  std::vector<Use> uses_;                      ///< by piece, then node
  std::vector<std::uint32_t> byNode_;
  std::vector<std::uint32_t> nodeBegin_;
  IndexedVector<PieceIndex, std::vector<std::uint32_t>> apartGroups_;
  std::vector<std::vector<PieceIndex>> apartPieces_; ///< by group
  InMemoryTimes times_;
  std::uint64_t exclusivePages_ = 0;
  std::uint64_t peakPages_ = 0;
};

/// Earliest start and end of every captured node. A programmatic edge counts as an ordinary one here: the second
/// kernel's work needs the first one's results. What nodes do with hosted pages takes its time on `machine`.
InMemoryTimes inMemoryTimes(const Description &captured, const Machine &machine = {});

inline double costUsOf(const Node &node) {
  return node.costUs > 0 ? node.costUs : 0.0;
} // NaN is not > 0

} // namespace pumpgraph
