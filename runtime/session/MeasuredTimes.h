// SPDX-License-Identifier: Apache-2.0
/// \file
/// Converts times of a rewritten step's nodes into node costs for the planner.
#pragma once

#include "runtime/session/Step.h"

#include <vector>

namespace pumpgraph::runtime {

/// Whether nodes of the plan have operands in host memory, so that their times are not those on the device.
bool hostsOperands(const CompiledPlan &plan);

/// Gives the nodes of `step` the times that were measured while `plan` was in force, `measuredUs` by captured position.
/// Of a node that read or wrote hosted pages, its accesses to them get the slowdown with which the plan would have
/// predicted its time, and join the `known` ones; the same accesses of other nodes with that name get the median of
/// these, unless they are known. What such a node would take on the device is what the plan assumed, times what others
/// with its name took of what it assumed for them; not more than was measured.
void takeMeasured(Description &step, KnownAccesses &known, const CompiledPlan &plan,
                  const std::vector<double> &measuredUs);

/// What passes before each of a step's nodes that clocks around nodes do not show: they put nodes one behind the other,
/// and where several lead to one the device takes longer to begin it. The step took `measuredUs`; by its `nodes`' times
/// it should have taken `predictedUs`. At most two microseconds: what is missing beyond that has another reason.
double gapBetweenNodesUs(double measuredUs, double predictedUs, std::size_t nodes);

/// A lowered step with the node times and slowdowns of the captured one that it was made of.
Description withMeasured(Description lowered, const Description &step);

} // namespace pumpgraph::runtime
