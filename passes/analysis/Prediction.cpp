// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Prediction.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Occupancy.h"
#include "passes/analysis/ReplayModel.h"
#include "passes/analysis/Timeline.h"

#include <algorithm>
#include <cassert>
#include <limits>
#include <optional>
#include <utility>

namespace pumpgraph {

namespace {

bool isTransfer(const Node &node) {
  return movesUp(node.kind) || movesDown(node.kind);
}
bool isCaptured(const Node &node) {
  return !isResidency(node.kind) && !isCopy(node.kind);
}

TaskGraph graphOf(const Description &description) {
  std::vector<TaskGraph::Dependency> dependencies;
  dependencies.reserve(description.edges.size());
  for (const Edge &edge : description.edges)
    dependencies.push_back({edge.from, edge.to});
  return TaskGraph(description.nodes.size(), dependencies);
}

/// The predecessor that ends last, and when the last captured one ends.
struct Arrivals {
  std::optional<NodeIndex> lastAdded;
  double addedUs = 0;
  double capturedUs = 0;
};

std::vector<Arrivals> arrivalsOf(const Description &description, const std::vector<NodeTimes> &times) {
  std::vector<Arrivals> arrivals(description.nodes.size());
  for (const Edge &edge : description.edges) {
    Arrivals &arrival = arrivals[edge.to];
    const double endUs = times[edge.from].endUs;
    if (isCaptured(description.nodes[edge.from])) {
      arrival.capturedUs = std::max(arrival.capturedUs, endUs);
      continue;
    }
    if (!arrival.lastAdded || endUs > arrival.addedUs) {
      arrival.lastAdded = edge.from;
      arrival.addedUs = endUs;
    }
  }
  return arrivals;
}

std::vector<Stall> stallsOf(const Description &description, const std::vector<NodeTimes> &times) {
  constexpr double noticeableUs = 1e-3;
  const std::vector<Arrivals> arrivals = arrivalsOf(description, times);
  std::vector<Stall> stalls;
  for (NodeIndex n = 0; n < description.nodes.size(); ++n) {
    const Arrivals &arrival = arrivals[n];
    if (!isCaptured(description.nodes[n]) || !arrival.lastAdded || arrival.addedUs <= arrival.capturedUs + noticeableUs)
      continue;
    // A discard takes no time: the wait is for what it waits for.
    NodeIndex cause = *arrival.lastAdded;
    while (!isTransfer(description.nodes[cause]) && arrivals[cause].lastAdded &&
           arrivals[cause].addedUs >= arrivals[cause].capturedUs)
      cause = *arrivals[cause].lastAdded;
    stalls.push_back(
        {n, cause, description.nodes[cause].buffer, arrival.capturedUs, arrival.addedUs - arrival.capturedUs});
  }
  std::stable_sort(stalls.begin(), stalls.end(),
                   [](const Stall &a, const Stall &b) { return a.durationUs > b.durationUs; });
  return stalls;
}

Prediction predictionOf(const Description &description, const ReplayTimes &times) {
  std::vector<NodeTimes> nodes(description.nodes.size());
  for (std::size_t n = 0; n < nodes.size(); ++n)
    nodes[n] = {times.startUs[n], times.endUs[n]};
  return predictionOf(description, std::move(nodes), times.totalUs);
}

} // namespace

double underWayUs(const Description &description, const std::vector<NodeTimes> &times, bool (*moves)(NodeKind),
                  double fromUs, double toUs) {
  std::vector<std::pair<double, double>> transfers;
  for (std::size_t n = 0; n < times.size(); ++n)
    if (moves(description.nodes[n].kind))
      transfers.push_back({std::max(times[n].startUs, fromUs), std::min(times[n].endUs, toUs)});
  std::sort(transfers.begin(), transfers.end());
  double us = 0, reachedUs = fromUs;
  for (const auto &[startUs, endUs] : transfers) {
    us += std::max(0.0, endUs - std::max(startUs, reachedUs));
    reachedUs = std::max(reachedUs, endUs);
  }
  return us;
}

Prediction predict(const Description &description, const Machine &machine) {
  assert(description.stage != Stage::LoweredManaged && "an agent has its own times: predictManaged()");
  return predictionOf(description, replayInOrder(tasksOf(description, machine), graphOf(description), machine));
}

std::vector<Task> tasksOf(const Description &description, const Machine &machine) {
  std::vector<Task> tasks = tasksWithoutHosted(description, machine);
  const std::vector<Traffic> hosted = hostedTraffic(description).loadByNode;
  for (std::size_t n = 0; n < tasks.size(); ++n)
    if (hosted[n].total() > 0)
      tasks[n].hosted = {hosted[n]};
  return tasks;
}

std::vector<Task> tasksWithoutHosted(const Description &description, const Machine &machine) {
  std::vector<Task> tasks(description.nodes.size());
  for (std::size_t n = 0; n < tasks.size(); ++n) {
    const Node &node = description.nodes[n];
    tasks[n].lane = movesUp(node.kind) ? Lane::Up : movesDown(node.kind) ? Lane::Down : Lane::None;
    if (isTransfer(node)) {
      tasks[n].bytes = node.range.size;
      tasks[n].overheadUs = node.joined ? 0 : overheadUs(machine, movesDown(node.kind));
    } else if (isCaptured(node)) {
      tasks[n].costUs = costUsOf(node);
    }
  }
  return tasks;
}

Prediction predictAsReady(const Description &description, const Machine &machine) {
  return predictAsReady(description, tasksOf(description, machine), machine);
}

Prediction predictAsReady(const Description &description, const std::vector<Task> &tasks, const Machine &machine) {
  return predictionOf(description, replayAsReady(tasks, graphOf(description), machine));
}

Prediction predictionOf(const Description &description, std::vector<NodeTimes> nodes, double totalUs) {
  Prediction prediction;
  prediction.totalUs = totalUs;
  prediction.nodes = std::move(nodes);
  for (std::size_t n = 0; n < prediction.nodes.size(); ++n) {
    const Node &node = description.nodes[n];
    prediction.upBytes += movesUp(node.kind) ? node.range.size : 0;
    prediction.downBytes += movesDown(node.kind) ? node.range.size : 0;
  }
  constexpr double ever = std::numeric_limits<double>::infinity();
  prediction.upBusyUs = underWayUs(description, prediction.nodes, movesUp, 0, ever);
  prediction.downBusyUs = underWayUs(description, prediction.nodes, movesDown, 0, ever);
  prediction.stalls = stallsOf(description, prediction.nodes);
  prediction.memory = occupancy(description, prediction.nodes);
  for (const MemoryPoint &point : prediction.memory)
    prediction.peakBytes = std::max(prediction.peakBytes, point.bytes);
  return prediction;
}

} // namespace pumpgraph
