// SPDX-License-Identifier: Apache-2.0
/// \file
/// The search for the best plan of a step with pieces of one size: which proposers, in which order
/// (docs/design/planner.md).
#pragma once

#include "passes/plan/search/Repairs.h"
#include "passes/plan/search/Search.h"

#include <cstdint>
#include <optional>

namespace pumpgraph {

struct FindOptions {
  std::uint64_t budgetBytes = 0;
  const FixedHomes *fixed = nullptr; ///< where those that are to choose first have their frames instead
  bool isQuick = false;              ///< no neighbourhood search
};

struct Found {
  Evaluated apart;  ///< each transfer a copy of its own
  Evaluated inRows; ///< small ones as rows of common copies, where that is better
  SearchTrace trace;
};

/// The best plan found; nothing if some node's pieces find no frames. No plan depends on workers and shares, of which
/// one search is done in the end.
std::optional<Found> findPlan(const PlannerInput &input, const FindOptions &options, Workers &workers, Shares &shares);

} // namespace pumpgraph
