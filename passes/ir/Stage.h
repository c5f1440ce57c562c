// SPDX-License-Identifier: Apache-2.0
/// \file
/// How far a step has come: captured, planned, lowered.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <algorithm>

namespace pumpgraph::ir {

/// A plan names frames even where it adds no node.
inline bool isPlanned(const Description &description) {
  return std::any_of(description.buffers.begin(), description.buffers.end(),
                     [](const Buffer &buffer) { return !buffer.frames.empty(); }) ||
         std::any_of(description.nodes.begin(), description.nodes.end(),
                     [](const Node &node) { return isAdded(node.kind); });
}

inline bool isLowered(const Description &description) {
  return std::any_of(description.nodes.begin(), description.nodes.end(),
                     [](const Node &node) { return isCopy(node.kind); });
}

/// Why a step cannot be lowered; null if it can.
inline const char *obstacleToLowering(const Description &description) {
  if (!isPlanned(description))
    return "the step has no plan to lower";
  return isLowered(description) ? "the step is lowered already" : nullptr;
}

} // namespace pumpgraph::ir
