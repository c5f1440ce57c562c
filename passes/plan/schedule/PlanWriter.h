// SPDX-License-Identifier: Apache-2.0
/// \file
/// From decisions to a plan.
#pragma once

#include "passes/plan/schedule/Schedule.h"

#include <cstdint>

namespace pumpgraph {

/// The planned description: `captured` plus transfers, discards, edges, frames and the boundary state. Transfers of
/// one direction are chained in the order of the schedule; edges that completion already implies are left out.
Description writePlan(const PlannerInput &input, const Draft &draft, const Schedule &schedule,
                      std::uint64_t budgetBytes);

} // namespace pumpgraph
