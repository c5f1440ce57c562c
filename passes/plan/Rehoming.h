// SPDX-License-Identifier: Apache-2.0
/// \file
/// Lets some pieces choose their frames anew, and when they leave them, once all others have theirs (docs/planner.md,
/// "Homes chosen again").
#pragma once

#include "passes/plan/PlanSearch.h"
#include "passes/plan/Processors.h"

#include <cstdint>
#include <vector>

namespace pumpgraph {

/// Improves the best plan of `search`, which was made with `leaves` (DraftStart) and `tuning`, of which all
/// but the weight of lateness is kept. Spends about `mostEffort`, counted as in Draft. Works in as many threads as
/// `processors` has for each search; the plan does not depend on that.
void chooseHomesAgain(const PlannerInput &input, PlanSearch &search, const std::vector<std::uint8_t> &leaves,
                      const Tuning &tuning, std::uint64_t mostEffort, const Processors &processors);

} // namespace pumpgraph
