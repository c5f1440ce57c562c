// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which values a step makes again instead of keeping or moving them (docs/design/rematerialization.md).
#pragma once

#include "passes/analysis/Machine.h"
#include "passes/rematerialize/Sequence.h"

#include <cstdint>
#include <vector>

namespace pumpgraph {

struct RepetitionOptions {
  std::uint64_t budgetBytes = 0;
  Machine machine;
  /// Sequences that one search may judge.
  std::size_t judgements = 800;
};

/// The sequence that is estimated to take least under the budget, moves and repetitions together. It has no repetition
/// where none helps. The description is captured, and its nodes have costs. Deterministic.
std::vector<Turn> chooseRepetitions(const Description &captured, const RepetitionOptions &options);

} // namespace pumpgraph
