// SPDX-License-Identifier: Apache-2.0
/// \file
/// The budgets that matter for a step: the least, the peak, a budget that suffices, and a sweep between them.
#pragma once

#include "passes/pipeline/Compile.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pumpgraph {

/// One point of a sweep over budgets.
struct SweepPoint {
  std::uint64_t budgetBytes = 0;
  bool plannable = false;
  std::string reason; ///< if not plannable
  double predictedUs = 0, boundUs = 0, planBoundUs = 0;
  double movesUs = 0; ///< predicted, of a quick plan that repeats nothing; 0 where `predictedUs` is of such a one
  std::uint64_t upBytes = 0, downBytes = 0, peakBytes = 0;
};

/// The device memory that the step needs without any transfer, page-granular.
tl::expected<std::uint64_t, PlanError> peakBytes(const Description &captured, const Machine &machine);

/// No plan can do with less without hosted pages: exclusive buffers and the largest set of pages that one node touches,
/// or that are present between replays.
std::uint64_t smallestBudget(const Description &captured);

/// Plans `points` budgets, evenly spaced from the smallest the step can live with to its peak; fewer where there are
/// not that many different ones. Empty if the step cannot be planned at all.
std::vector<SweepPoint> sweep(const Description &captured, const CompileOptions &options, int points);

/// The smallest budget found at which the step runs at its in-memory speed, from a few that are planned between its own
/// and the peak. Takes about six times `planMs`. Nothing where the step already runs at that speed.
std::optional<std::uint64_t> findEnough(const Compiled &compiled);

/// The same from budgets that are planned already: coarser, and free. Nothing also where none of these suffices.
std::optional<std::uint64_t> findEnough(const Compiled &compiled, const std::vector<SweepPoint> &points);

} // namespace pumpgraph
