// SPDX-License-Identifier: Apache-2.0
/// \file
/// From decisions to a plan: puts the transfers of a draft in order and writes the planned description.
#pragma once

#include "passes/analysis/ReplayModel.h"
#include "passes/plan/allocate/FramePlanner.h"

#include <cstdint>
#include <vector>

namespace pumpgraph {

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

struct JoinLimits {
  std::uint32_t reach = 0;     ///< most others between two on their lane
  std::uint32_t mostPages = 0; ///< of what comes of it
};

/// Makes one transfer of those that lie side by side in a buffer and follow each other on their lane, where the later
/// one could have begun with the first: each copy costs something whatever its size.
Draft joinTransfers(const Draft &draft, const Schedule &schedule, const JoinLimits &limits);

struct RowLimits {
  std::size_t reach = 0;       ///< most copies of a lane back that may still get rows
  std::uint64_t mostBytes = 0; ///< of all rows of a copy
};

/// Makes one copy of several rows of transfers of one size that follow each other closely on their lane, where the
/// later ones could have begun with the first.
Draft joinRows(const Description &captured, const Draft &draft, const Schedule &schedule, const RowLimits &limits);

/// The planned description: `captured` plus transfers, discards, edges, frames and the boundary state. Transfers of
/// one direction are chained in the order of the schedule; edges that completion already implies are left out.
Description writePlan(const PlannerInput &input, const Draft &draft, const Schedule &schedule,
                      std::uint64_t budgetBytes);

} // namespace pumpgraph
