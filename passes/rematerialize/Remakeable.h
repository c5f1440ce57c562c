// SPDX-License-Identifier: Apache-2.0
/// \file
/// How much of what a step holds at its peak could be made again, and why the rest could not.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pumpgraph {

struct Remakeable {
  NodeIndex peak = 0;       ///< the captured node at which the most bytes hold values, everything being on the device
  std::uint64_t bytes = 0;  ///< that hold values then
  std::uint64_t again = 0;  ///< of these, those that captured nodes could make again right after it
  std::uint64_t before = 0; ///< those that have their value from before the step: weights, state, inputs

  /// What stands against it, of a value or of one that has to be made before it.
  enum class Against { NotPure, Lasting, Overwritten };
  struct Obstacle {
    Against against = Against::NotPure;
    /// Of the nodes: their operator, where their labels end with one in brackets; else their label or symbol.
    /// Overwritten: of the buffer whose earlier contents are needed.
    std::string name;
    std::uint64_t bytes = 0;
  };
  std::vector<Obstacle> obstacles; ///< the largest first
  /// Where the values are that are there at the peak.
  std::vector<std::pair<BufferIndex, Range>> alive;
};

/// Of a captured step with first touches claimed (FirstTouches.h).
Remakeable findRemakeable(const Description &captured);

} // namespace pumpgraph
