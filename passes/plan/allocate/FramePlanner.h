// SPDX-License-Identifier: Apache-2.0
/// \file
/// One pass over a step in node order that gives every page its frame and decides who leaves when
/// (docs/design/planner.md).
#pragma once

#include "passes/plan/allocate/Draft.h"
#include "passes/plan/allocate/PlannerInput.h"

#include <tl/expected.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace pumpgraph {

/// What is decided before the pass.
struct DraftStart {
  BoundaryStates boundary;
  /// Pieces that choose their frames before all others do, in this order.
  std::vector<PieceIndex> first = {};
  /// By position of a use: whether its piece is to be away before it. Empty: nothing is chosen.
  std::vector<std::uint8_t> leaves = {};
  PieceFrames homes = {};    ///< frames that are fixed; empty: those that are given
  double slackWeight = 4.0;  ///< of a hand-over that may come too late, against a transfer
  bool looksFurther = false; ///< whether groups that are needed sooner are looked at too
};

/// No frames for the pieces of a node; if they were to choose before the pass, of the widest that uses the one which
/// found none. Without a node: none for the pieces that are on the device at the step boundary.
struct Stuck {
  std::optional<NodeIndex> node;
  std::uint64_t effort = 0; ///< as in Draft
};

/// Fails when some node's pieces cannot be brought together in the frames left: every page keeps one frame for the
/// whole step.
tl::expected<Draft, Stuck> draftPlan(const PlannerInput &input, const DraftStart &start);

/// The draft in which nothing makes room for anything: the frames must suffice for `timeline.peakPages()`. Its only
/// transfers are of values that go on at another address, in host memory. Nothing where pages that must be apart find
/// no frames.
std::optional<Draft> draftWithoutTransfers(const PlannerInput &input);

/// Frames for all pages chosen by who must not meet whom alone; empty if that fails.
std::optional<PieceFrames> colourPieces(const PlannerInput &input);

} // namespace pumpgraph
