// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/schedule/Schedule.h"

#include "passes/analysis/HostedAccess.h"

#include <algorithm>
#include <utility>

namespace pumpgraph {

namespace {

std::uint64_t bytesOf(const Description &description, const DraftTransfer &transfer) {
  return bytesOf(description, transfer.pages) * (1 + transfer.rows.size());
}

/// By when each node is needed: the first captured node that waits for it, or the end of the step.
std::vector<std::uint32_t> urgencies(const Draft &draft) {
  const std::uint32_t count = draft.capturedCount + static_cast<std::uint32_t>(draft.transfers.size());
  std::vector<std::uint32_t> urgency(count, draft.capturedCount);
  for (DraftNode n = 0; n < draft.capturedCount; ++n)
    urgency[n] = n;
  // What waits for an added node was decided after it, so going backwards meets it with its urgency known.
  std::vector<DraftEdge> edges = draft.edges;
  std::sort(edges.begin(), edges.end(), [](const DraftEdge &a, const DraftEdge &b) { return a.before > b.before; });
  for (const DraftEdge &edge : edges)
    if (edge.before >= draft.capturedCount)
      urgency[edge.before] = std::min(urgency[edge.before], urgency[edge.after]);
  return urgency;
}

} // namespace

std::uint64_t bytesOf(const Description &description, const PageRun &pages) {
  const std::uint64_t begin = pages.firstPage * description.pageBytes;
  const std::uint64_t end = begin + pages.pageCount * description.pageBytes;
  return std::min(end, description.buffers[pages.buffer].size) - begin;
}

std::vector<TaskGraph::Dependency> dependenciesOf(const PlannerInput &input, const Draft &draft) {
  std::vector<TaskGraph::Dependency> dependencies;
  dependencies.reserve(input.captured.edges.size() + draft.edges.size() + draft.deferrals.size());
  for (const Edge &edge : input.captured.edges)
    dependencies.push_back({edge.from, edge.to});
  for (const std::vector<DraftEdge> *edges : {&draft.edges, &draft.deferrals})
    for (const DraftEdge &edge : *edges)
      dependencies.push_back({edge.before, edge.after});
  return dependencies;
}

Schedule scheduleDraft(const PlannerInput &input, const Draft &draft) {
  std::vector<Task> tasks(draft.capturedCount + draft.transfers.size());
  const std::vector<Traffic> hosted = hostedTraffic(input.captured).loadByNode;
  for (NodeIndex n = 0; n < draft.capturedCount; ++n) {
    tasks[n].costUs = costUsOf(input.captured.nodes[n]);
    if (hosted[n].total() > 0)
      tasks[n].hosted = {hosted[n]};
  }
  for (std::size_t t = 0; t < draft.transfers.size(); ++t) {
    Task &task = tasks[draft.capturedCount + t];
    task.lane = draft.transfers[t].kind == NodeKind::Prefetch ? Lane::Up : Lane::Down;
    task.bytes = bytesOf(input.captured, draft.transfers[t]);
    task.overheadUs = overheadUs(input.machine, task.lane == Lane::Down);
    // What it displaces after a node leaves for nothing, or it would come after that one's eviction.
    task.delayUs = input.machine.requestUs + (task.lane == Lane::Up ? emptyUs(input.machine, task.bytes) : 0);
  }
  const std::vector<TaskGraph::Dependency> dependencies = dependenciesOf(input, draft);
  ReplayTimes times = replayByUrgency(tasks, TaskGraph(tasks.size(), dependencies), input.machine, urgencies(draft),
                                      draft.capturedCount);
  std::vector<double> readyUs(tasks.size(), 0);
  for (const TaskGraph::Dependency &dependency : dependencies)
    readyUs[dependency.after] = std::max(readyUs[dependency.after], times.endUs[dependency.before]);
  return {std::move(times.startOrder), times.totalUs, std::move(times.startUs), std::move(times.endUs),
          std::move(readyUs)};
}

} // namespace pumpgraph
