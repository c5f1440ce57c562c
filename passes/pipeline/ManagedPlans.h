// SPDX-License-Identifier: Apache-2.0
/// \file
/// The plan of a step on managed memory: of several, each lowered, the one that is predicted to be the fastest.
#pragma once

#include "passes/lower/LowerManaged.h"
#include "passes/plan/PlanResidency.h"

#include <vector>

namespace pumpgraph {

/// How a step on managed memory is planned and lowered. Ignored on virtual memory.
struct ManagedPlanning {
  Prefetching prefetching = Prefetching::Ahead;
  /// Ascending: all or a part of these buffers may be hosted where that is predicted to be faster. The slowdowns of the
  /// accesses to them have to be measured.
  std::vector<BufferIndex> mayBeHosted = {};
  bool hostsInParts = true; ///< else each of these is hosted as a whole or not at all
  /// The plan is made as if operations took so many times as long. The prediction of the plan is not.
  double slowerBy = 1;
};

/// Like planResidency(). Plans are made with less for an operation than it takes, too: they move fewer bytes in more
/// pieces, of which lowering makes fewer again. Where `managed` lets it choose, buffers stay in host memory for which
/// that is faster than operations (docs/design/planner.md, "Variants of a step").
tl::expected<PlannedStep, PlanError> planForManaged(const Description &captured, const PlanOptions &options,
                                                    const ManagedPlanning &managed);

} // namespace pumpgraph
