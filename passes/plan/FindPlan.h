// SPDX-License-Identifier: Apache-2.0
/// \file
/// The search for the best plan of a step with pieces of one size: from where the pass over the nodes starts, whose
/// frames are fixed, how its transfers are joined and ordered (docs/planner.md).
#pragma once

#include "passes/plan/FramePlanner.h"
#include "passes/plan/PlanSearch.h"
#include "passes/plan/Processors.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace pumpgraph {

/// Frames for all pieces, and the pieces that take theirs from the start: they leave the pass no choice.
struct FixedHomes {
  PieceFrames homes;
  std::vector<PieceIndex> tight;
};

/// The best plan found; nothing if some node's pieces find no frames. `fixed`: where those that are to choose first
/// have their frames instead; may be null. A quick search chooses no homes again. No plan depends on `processors`.
std::optional<Candidate> findPlan(const PlannerInput &input, std::uint64_t budgetBytes, const FixedHomes *fixed,
                                  bool isQuick, const Processors &processors);

} // namespace pumpgraph
