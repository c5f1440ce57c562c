// SPDX-License-Identifier: Apache-2.0
/// \file
/// All that a plan of a variant of a step depends on, but for choices.
#pragma once

#include "passes/analysis/Machine.h"
#include "passes/analysis/Order.h"
#include "passes/analysis/Timeline.h"
#include "passes/plan/allocate/Draft.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace pumpgraph {

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

} // namespace pumpgraph
