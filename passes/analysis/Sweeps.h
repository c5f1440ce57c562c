// SPDX-License-Identifier: Apache-2.0
/// \file
/// Walks over all that lives across the step, several in a row: an optimizer made of many small operations, each over
/// every parameter.
#pragma once

#include "passes/analysis/RequiredTraffic.h"
#include "pumpgraph/graph/Description.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pumpgraph {

/// Sweeps in a row that touch the same bytes again. A byte is *touched* once by neighbouring nodes of one name that all
/// access it, because a large tensor is cut over several launches of one operation; a *walk* is a longest run of nodes
/// that touch no byte twice, the first from the first node on; a *sweep* is a walk over at least `leastBuffers` buffers
/// and a good part of what lives. Two are in a row if less is touched between them than a sweep has.
/// Forward and backward have none: each of their nodes takes what the one before it made, so their walks are short.
/// Nodes at either end are left out if less than a quarter of their bytes are live, or more than half neither live nor
/// belong to the other sweeps.
struct RepeatedSweeps {
  static constexpr std::size_t leastBuffers = 8;
  static constexpr std::uint64_t leastShare = 8;      ///< a sweep touches at least 1/8 of all live bytes that are used
  static constexpr std::uint64_t leastShareAgain = 4; ///< what is touched again is at least 1/4 of them

  NodeIndex first = 0; ///< of the description given; the first node of the first sweep
  NodeIndex last = 0;
  std::uint32_t sweeps = 0; ///< at least 2
  std::uint32_t nodes = 0;  ///< that touch private buffers
  /// Of private buffers: what is touched and has a value before or after these nodes, each byte once. Gradients too.
  std::uint64_t stateBytes = 0;
  /// Of private buffers: touches beyond the first of each of those bytes, and all of what lives between these nodes
  /// only.
  std::uint64_t touchedAgainBytes = 0;
  /// What one walk would not move: copies up for these nodes beyond one for each page that has a value before them, and
  /// copies down after them beyond one for each page that has a value afterwards. 0 for a step without a plan.
  Traffic saved;
};

/// Ascending; captured, planned or lowered.
std::vector<RepeatedSweeps> findRepeatedSweeps(const Description &step);

} // namespace pumpgraph
