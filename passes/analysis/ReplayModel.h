// SPDX-License-Identifier: Apache-2.0
/// \file
/// The timing model under the prediction and the planner: kernels as fast as their dependencies allow, one copy a
/// direction, or as many to the host as the machine has side by side, and a link whose two directions share what both
/// together can carry (docs/design/cost-model.md).
#pragma once

#include "passes/analysis/Machine.h"
#include "passes/analysis/RequiredTraffic.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <span>
#include <vector>

namespace pumpgraph {

enum class Lane : std::uint8_t { None, Up, Down };

/// A node as the model sees it.
struct Task {
  Lane lane = Lane::None;
  double costUs = 0;       ///< Lane::None only
  std::uint64_t bytes = 0; ///< transfers only
  double overheadUs = 0;   ///< transfers only: beside their bytes
  /// Transfers only: how long after a task without a lane it begins, if that is the last that it comes after.
  double delayUs = 0;
  /// Transfers only: waits once for a task with hosted bytes to end: for those that run when its turn has come, or else
  /// for the first that starts while it takes its overhead.
  bool waitsForHosted = false;
  /// Lane::None only: what the task moves over the link itself, after its cost, one after the other. None is empty.
  std::vector<Traffic> hosted = {};
};

/// Who must end before whom, as adjacency by task.
class TaskGraph {
public:
  struct Dependency {
    std::uint32_t before = 0;
    std::uint32_t after = 0;
  };
  TaskGraph() = default;
  TaskGraph(std::size_t taskCount, std::span<const Dependency> dependencies);

  std::span<const std::uint32_t> successors(std::uint32_t task) const {
    return std::span(successors_).subspan(begin_[task], begin_[task + 1] - begin_[task]);
  }
  const std::vector<std::uint32_t> &inDegrees() const { return inDegrees_; }

private:
  std::vector<std::uint32_t> begin_;
  std::vector<std::uint32_t> successors_;
  std::vector<std::uint32_t> inDegrees_;
};

struct ReplayTimes {
  std::vector<double> startUs;
  std::vector<double> endUs;
  std::vector<std::uint32_t> startOrder; ///< every task, as they started: a topological order
  double totalUs = 0;
};

/// Plays the tasks with transfers of a lane in the order of their indices: what a lowered graph does.
ReplayTimes replayInOrder(std::span<const Task> tasks, const TaskGraph &graph, const Machine &machine);

/// Plays them with each lane free to take the first, in that order, of the transfers that are ready: what an agent
/// does.
ReplayTimes replayAsReady(std::span<const Task> tasks, const TaskGraph &graph, const Machine &machine);

/// Plays them with each lane free to take, of the transfers that are ready, the one with the smallest `urgency`; of
/// the other tasks the first `orderedCount` start in the order of their indices. This is list scheduling: its start
/// order is how the planner orders a plan.
ReplayTimes replayByUrgency(std::span<const Task> tasks, const TaskGraph &graph, const Machine &machine,
                            std::span<const std::uint32_t> urgency, std::uint32_t orderedCount);

} // namespace pumpgraph
