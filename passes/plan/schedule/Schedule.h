// SPDX-License-Identifier: Apache-2.0
/// \file
/// A draft in time: which node starts when.
#pragma once

#include "passes/analysis/ReplayModel.h"
#include "passes/plan/allocate/Draft.h"
#include "passes/plan/allocate/PlannerInput.h"

#include <cstdint>
#include <vector>

namespace pumpgraph {

std::uint64_t bytesOf(const Description &description, const PageRun &pages);

/// A draft's nodes in the order in which they are expected to start.
struct Schedule {
  std::vector<DraftNode> order; ///< topological; captured nodes keep their order among themselves
  double totalUs = 0;
  std::vector<double> startUs; ///< by DraftNode
  std::vector<double> endUs;
  std::vector<double> readyUs; ///< by DraftNode: when all it waits for but its lane is over
};

/// All completion of the draft: captured, needed, and deferred to.
std::vector<TaskGraph::Dependency> dependenciesOf(const PlannerInput &input, const Draft &draft);

/// Lets each direction of the link take whatever is ready and needed first.
Schedule scheduleDraft(const PlannerInput &input, const Draft &draft);

} // namespace pumpgraph
