// SPDX-License-Identifier: Apache-2.0
/// \file
/// Where captured nodes are drawn: nodes that run side by side need lanes of their own.
#pragma once

#include "passes/analysis/Prediction.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <vector>

namespace pumpgraph {

struct Lanes {
  std::size_t computeLanes = 1;
  /// By NodeIndex: the compute lane of a captured node. Two nodes of one lane do not overlap in time.
  std::vector<std::uint32_t> laneOf;
};

Lanes assignLanes(const Description &description, const Prediction &prediction);

} // namespace pumpgraph
