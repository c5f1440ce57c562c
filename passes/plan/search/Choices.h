// SPDX-License-Identifier: Apache-2.0
/// \file
/// All that a search decides about a step, as data: equal choices make the same plan, byte for byte.
#pragma once

#include "passes/plan/allocate/FramePlanner.h"

#include <tl/expected.hpp>

#include <cstdint>
#include <string>
#include <string_view>

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
  PieceFrames homes; ///< by piece; empty: it chooses in the pass
  Tuning tuning;
  Finish finish;
  bool operator==(const Choices &other) const;
};

/// Of all members.
std::uint64_t hashOf(const Choices &choices);

/// Lines of a name and values, runs of equal ones as "8*R". For people, tests and traces.
std::string toText(const Choices &choices);
/// Reads what toText() has written; else why it cannot, with the line.
tl::expected<Choices, std::string> choicesOf(std::string_view text);

} // namespace pumpgraph
