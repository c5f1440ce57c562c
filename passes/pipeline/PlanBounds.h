// SPDX-License-Identifier: Apache-2.0
/// \file
/// The bounds of a step at one budget, found while it is planned.
#pragma once

#include "passes/analysis/Bound.h"
#include "passes/plan/PlanResidency.h"
#include "passes/plan/Workers.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace pumpgraph {

/// Bounds that need no plan are found in threads of their own, unless there is one processor alone.
class PlanBounds {
public:
  PlanBounds(const Description &captured, const PlanOptions &options, Repetitions repetitions);
  PlanBounds(const PlanBounds &) = delete;
  PlanBounds &operator=(const PlanBounds &) = delete;

  /// Of all plans within the budget of `planned`.
  Bound must(const Description &planned);
  /// Of plans that host the same as `planned`, and of those that host no more than they must.
  std::pair<Bound, Bound> may(const Description &planned);

private:
  Bound ofBudget(std::uint64_t budgetBytes, BoundKind kind, Backend backend) const;

  const Description captured_; // its own: a bound that is asked for by nobody may still be under way
  const std::vector<BufferPart> hosted_;
  const Machine machine_;
  const Backend backend_;
  const std::uint64_t budgetBytes_;
  const Repetitions repetitions_;
  Workers workers_; // after all that the jobs refer to
  Job<Bound> must_, may_;
};

/// The bound of plans like `planned`, of the same step: with the same hosted pages.
Bound planBoundOf(const Description &captured, const Description &planned, const Machine &machine,
                  Backend backend = Backend::Virtual, Repetitions repetitions = Repetitions::None);

} // namespace pumpgraph
