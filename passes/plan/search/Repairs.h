// SPDX-License-Identifier: Apache-2.0
/// \file
/// What is changed of all choices once some node's pieces found no frames.
#pragma once

#include "passes/plan/search/Evaluator.h"

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace pumpgraph {

/// Frames for all pieces, and the pieces that take theirs from the start: they leave the pass no choice.
struct FixedHomes {
  PieceFrames homes;
  std::vector<PieceIndex> tight;
};

class Repairs {
public:
  /// `fixed`: where those that are to choose first have their frames instead; may be null. Both are referred to.
  Repairs(const PlannerInput &input, const FixedHomes *fixed);

  /// Some node found no frames: from now on its pieces have those of the best plan; without a plan they, and those of
  /// nodes with large working sets, choose before all others. Returns false when enough was tried.
  bool repair(NodeIndex stuck, bool hasPlan);

  /// With what was repaired until now. `best`: the best plan; may be null.
  Choices applied(Choices choices, const Evaluated *best) const;

private:
  void gatherCrowd(NodeIndex stuck);
  void clearCrowd();
  void join(PieceIndex piece);
  void settleBoundary(DraftStart &start, const Evaluated *best) const;
  PieceFrames homes(const Evaluated *best) const;

  const PlannerInput &input_;
  const Timeline &timeline_;
  const FixedHomes *fixed_;
  int restarts_ = 0;
  std::uint64_t crowded_ = UINT64_MAX; ///< pages of a working set from which on its pieces choose first
  std::vector<NodeIndex> promoted_;    ///< nodes whose pieces found no frames, the latest first
  std::vector<PieceIndex> crowd_;      ///< choose before all others, or have the fixed frames
  IndexedVector<PieceIndex, bool> isInCrowd_;
  std::set<PieceIndex> kept_; ///< have the frames that they have in the best plan
};

} // namespace pumpgraph
