// SPDX-License-Identifier: Apache-2.0
/// \file
/// Lower limits on the time of a step under a budget, which no plan can beat (docs/design/cost-model.md derives them).
#pragma once

#include "passes/analysis/Backend.h"
#include "passes/analysis/Machine.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <optional>

namespace pumpgraph {

/// Which accesses a bound believes in. The two results are never mixed.
enum class BoundKind {
  Must, ///< `bound`: what nodes certainly touch; sound against every plan whatever
  May   ///< `planBound`: what nodes may touch; tells how good a plan is for what is known
};

/// Whether plans may run pure nodes again. A bound for those that may holds for the others too. It counts on a
/// repetition to take its node's time in which no other node runs, where nodes come one after another; elsewhere it
/// takes none.
enum class Repetitions { None, Allowed };

struct Bound {
  double inMemoryUs = 0; ///< critical path of the captured nodes
  double totalUs = 0;    ///< >= inMemoryUs
  /// Of the best partition into windows: how much of `totalUs` is due to which limit.
  double computeUs = 0; ///< or to nodes that must read or write hosted pages
  double upUs = 0;
  double downUs = 0;
  double bothUs = 0;
};

/// The description may be captured, planned or lowered: of the latter two only captured nodes count. `budgetBytes` 0 is
/// not allowed. Where pages are hosted in it, or some node touches more than the budget, `planBound` holds for plans
/// with hosted pages too; else for those without. With `mostHostedBytes`, if no page is hosted in it, it holds for
/// plans with so many bytes of them at most. `planBound` is of plans for the backend: where a page has one copy, more
/// crosses the link.
Bound bound(const Description &description, std::uint64_t budgetBytes, const Machine &machine, BoundKind kind,
            Backend backend = Backend::Virtual, std::optional<std::uint64_t> mostHostedBytes = std::nullopt,
            Repetitions repetitions = Repetitions::None);

} // namespace pumpgraph
