// SPDX-License-Identifier: Apache-2.0
/// \file
/// All that a search decides about a step, as data: equal choices make the same plan, byte for byte.
#pragma once

#include "passes/plan/allocate/FramePlanner.h"

#include <cstdint>

namespace pumpgraph {

/// What becomes of a draft's transfers once they have an order, in this sequence.
struct Finish {
  /// Neighbours are joined that follow each other on their lane with at most so many others between them; -1: none.
  std::int32_t joinReach = -1;
  std::uint32_t deferrals = 0; ///< how often those that have time give way to those that have none
  std::uint64_t rowBytes = 0;  ///< of all rows of a copy; 0: each has a copy of its own
  bool operator==(const Finish &) const = default;
};

struct Choices {
  DraftStart start;
  Finish finish;
};

/// Of all members.
std::uint64_t hashOf(const Choices &choices);

} // namespace pumpgraph
