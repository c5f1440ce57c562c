// SPDX-License-Identifier: Apache-2.0
/// \file
/// Converts times of a rewritten step's nodes into node costs for the planner.
#pragma once

#include "runtime/state/StepState.h"

#include <vector>

namespace pumpgraph::runtime {

/// Whether nodes of the plan have operands in host memory, so that their times are not those on the device.
bool hostsOperands(const CompiledPlan &plan);

/// Gives the nodes of `step` the times that were measured while `plan` was in force, `measuredUs` by captured position.
/// If a node read or wrote hosted pages, its accesses to them get the slowdown with which the plan would have predicted
/// its time, and join the `known` ones. The same accesses of other nodes with that name get the median of these, unless
/// they are known. Such a node's time on the device is the plan's assumption, scaled like the times of other nodes with
/// its name, and at most the measured time.
void takeMeasured(Description &step, KnownAccesses &known, const CompiledPlan &plan,
                  const std::vector<double> &measuredUs);

/// The time ahead of each of a step's nodes that clocks do not show, since they serialize nodes: where several nodes
/// lead to one, the device takes longer to begin it. The step took `measuredUs`; by its `nodes`' times it should have
/// taken `predictedUs`. At most two microseconds: a larger difference has another cause.
double gapBetweenNodesUs(double measuredUs, double predictedUs, std::size_t nodes);

/// Whether node times of the step were measured.
bool areMeasured(const Description &captured);
/// Whether a lowered step has the node times and slowdowns of the captured one that it was made of.
bool hasTimesOf(const Description &lowered, const Description &captured);

/// A lowered step with the node times and slowdowns of the captured one that it was made of.
Description withMeasured(Description lowered, const Description &step);

} // namespace pumpgraph::runtime
