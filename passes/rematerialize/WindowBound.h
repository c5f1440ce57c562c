// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a step takes at least where the rest is moved: judges one choice of repetitions against another.
#pragma once

#include "passes/analysis/Machine.h"
#include "passes/rematerialize/Sequence.h"

#include <cstdint>
#include <span>
#include <vector>

namespace pumpgraph {

class WindowBound {
public:
  /// For one budget. The step's nodes have costs.
  WindowBound(const Description &captured, const StepValues &values, const Machine &machine, std::uint64_t budgetBytes);

  /// Microseconds. The link carries what a window of the step needs beyond the budget: of its time, summed over
  /// disjoint windows (docs/design/cost-model.md, "One window"). Nodes run one after the other. The step is cut into
  /// equal parts, so that this is an estimate for comparisons, not a bound.
  double totalUs(std::span<const Turn> turns) const;
  /// Of the nodes alone.
  double computeUs(std::span<const Turn> turns) const;

private:
  struct Tables;
  Tables tablesOf(std::span<const Turn> turns) const;

  const Description &captured_;
  const StepValues &values_;
  const Machine machine_;
  double roomBytes_ = 0; ///< for private buffers
};

} // namespace pumpgraph
