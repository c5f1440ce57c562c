// SPDX-License-Identifier: Apache-2.0
/// \file
/// The shortest step time that any plan can reach, found by trying everything. For tiny steps only.
#pragma once

#include "passes/analysis/Bound.h"
#include "passes/analysis/Machine.h"
#include "pumpgraph/graph/Description.h"
#include "test/unit/check/Random.h"

#include <cstdint>
#include <optional>

namespace pumpgraph::test {

/// A machine on which a page of four bytes takes some microseconds, as the kernels of tiny steps do.
Machine slowMachine(Random &random);

/// Searches all ways to start nodes and to move single pages, one at a time in each direction, whenever something has
/// just ended; and all choices of what is on the device, in host memory or in both between two replays. A page counts
/// against the budget from the start of its prefetch, or of the first node that writes it, until it is dropped. It may
/// be in any frame, so the result can be lower than what plans with fixed frames reach, never higher. Copies take the
/// time of their bytes alone: `copyOverheadUs` is ignored.
///
/// Nodes that are pure may also run again (rule 11 of docs/design/plan-correctness.md), each as often as it pays, but
/// not twice at once. With `repeatsInLine`, where nodes come one after another, repetitions do as well.
///
/// `Must`: nodes touch only what they must. `May`: whatever they may touch. Programmatic edges count as full ones.
/// Nothing if no plan exists or the search exceeds `stateLimit`.
std::optional<double> optimumUs(const Description &captured, std::uint64_t budgetBytes, const Machine &machine,
                                BoundKind kind, bool repeatsInLine = false, std::size_t stateLimit = 60'000);

} // namespace pumpgraph::test
