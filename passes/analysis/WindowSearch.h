// SPDX-License-Identifier: Apache-2.0
/// \file
/// The search of a bound: which windows of a step take the link, or the device, the longest
/// (docs/design/cost-model.md).
#pragma once

#include "passes/analysis/Bound.h"
#include "passes/analysis/Machine.h"
#include "passes/analysis/PieceHistory.h"

#include <cstddef>
#include <vector>

namespace pumpgraph {

/// It keeps references.
struct WindowProblem {
  const std::vector<double> &segmentsUs; ///< how long each segment takes in memory
  std::size_t first = 0;                 ///< segment that the search begins before
  std::size_t rounds = 1;                ///< replays in a row
  double budgetBytes = 0;
  double hostedBytes = 0; ///< where nodes hold their operands: all but so much of all of them
  const Machine &machine;
};

/// The best partition of the step into windows; `inMemoryUs` is left at 0.
Bound searchWindows(const WindowProblem &problem, const std::vector<PieceHistory> &histories);

} // namespace pumpgraph
