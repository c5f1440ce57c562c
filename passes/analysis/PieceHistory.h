// SPDX-License-Identifier: Apache-2.0
/// \file
/// What each stretch of a step certainly needs and writes of each piece, for bounds (docs/design/cost-model.md).
#pragma once

#include "passes/analysis/Bound.h"
#include "passes/analysis/Order.h"
#include "passes/analysis/Timeline.h"
#include "pumpgraph/graph/Description.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pumpgraph {

/// What it costs to make a byte again, microseconds, rounded down: by powers of 2, of what the link takes for it.
class RemakePrices {
public:
  static constexpr std::size_t count = 12;
  static constexpr std::size_t never = count; ///< it cannot be made again

  explicit RemakePrices(const Machine &machine) : linkUsPerByte_(1e6 / machine.upBytesPerSecond) {}

  static std::size_t free() { return 0; }
  std::size_t of(double usPerByte) const {
    std::size_t price = 0;
    while (price + 1 < count && us(price + 1) <= usPerByte)
      ++price;
    return price;
  }
  double us(std::size_t price) const {
    constexpr int first = -8; // a price below that of a 256th of the link's is none
    return price == 0 ? 0 : std::ldexp(linkUsPerByte_, first + static_cast<int>(price) - 1);
  }

private:
  double linkUsPerByte_;
};

/// The captured nodes alone, in their order, and their edges among each other. A programmatic edge counts like a full
/// one: node times are those of the step as it runs, overlap included.
struct CapturedGraph {
  std::vector<NodeIndex> nodes;                     ///< position in the description
  std::vector<std::vector<NodeIndex>> predecessors; ///< by captured node

  explicit CapturedGraph(const Description &description);

  /// Whether the last node ends after all others.
  bool hasOneSink() const { return sinks_ == 1; }

  Order order() const;

private:
  std::ptrdiff_t sinks_ = 0;
};

/// A run of nodes; both ends are points at which windows may begin and end.
struct Segment {
  std::int64_t last = -1; ///< captured node; the one before the segment's if it has none
  /// One node by itself, with all it uses on the device from its start to its end: what it needs has come before the
  /// segment begins, and what it writes leaves after that.
  bool isAlone = false;
};

/// What one segment does to one piece.
struct Visit {
  std::uint32_t segment = 0;
  std::uint64_t neededBytes = 0; ///< of the value from before the segment, in every order of its nodes
  std::uint64_t writtenBytes = 0;
  bool writesAll = false;
  bool isAlone = false;                    ///< as the segment
  bool isOnDevice = false;                 ///< certainly at some time, without a host copy
  bool writes = false;                     ///< perhaps
  bool finds = false;                      ///< as the first node
  bool renewsAll = false;                  ///< some node does
  std::size_t price = RemakePrices::never; ///< the least of what it may write
};

struct PieceHistory {
  std::uint64_t bytes = 0;
  bool liveIn = false;
  bool liveOut = false;
  std::vector<Visit> visits; ///< those that need or may replace the value, by segment
};

/// What the histories of a step depend on. It keeps references.
struct HistoryInputs {
  const Description &description;
  BoundKind kind = BoundKind::Must;
  bool holdsOperands = false;             ///< all that a node uses is on the device while it runs
  const std::vector<bool> &keepsHostCopy; ///< by buffer: a host copy stays good while the page is on the device
  const CapturedGraph &graph;
  const Timeline &timeline;
  const IndexedVector<PieceIndex, double> &shares; ///< how much of each piece counts
  const std::vector<std::size_t> &prices; ///< by captured node: of a byte that it has written, to be made again
};

/// The history of every piece, segment by segment.
std::vector<PieceHistory> pieceHistories(const HistoryInputs &inputs, const std::vector<Segment> &segments);

} // namespace pumpgraph
