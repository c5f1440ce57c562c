// SPDX-License-Identifier: Apache-2.0
#include "passes/lower/PredictManaged.h"

#include "passes/analysis/HostedAccess.h"
#include "pumpgraph/graph/Ranges.h"
#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <set>

namespace pumpgraph {
namespace {

/// Calls `visit` with the frame of each page of the operation.
template <typename Visit> void forEachFrame(const Description &step, const Node &operation, Visit visit) {
  const std::vector<std::int32_t> &frames = step.buffers[operation.buffer].frames;
  for (const std::uint64_t page : pagesIn(operation.range, step.pageBytes))
    visit(frames[page]);
}

/// The step with its operations at the price they have.
Description asPriced(const Description &lowered) {
  std::set<BufferIndex> readMostly;
  for (const Node &node : lowered.nodes)
    if (node.kind == NodeKind::Advise && node.advice == Advice::ReadMostly)
      readMostly.insert(node.buffer);
  Description priced = lowered;
  for (NodeIndex i = 0; i < priced.nodes.size(); ++i) {
    Node &node = priced.nodes[i];
    const bool moves = node.kind == NodeKind::Evict      ? !readMostly.contains(node.buffer)
                       : node.kind == NodeKind::Prefetch ? !bringsNothing(lowered, i)
                                                         : true;
    if (!moves)
      node.kind = NodeKind::Discard;
  }
  return priced;
}

/// For each frame, the operations of the step that empty it.
std::map<std::int32_t, std::vector<NodeIndex>> evictionsByFrame(const Description &lowered) {
  std::map<std::int32_t, std::vector<NodeIndex>> evictions;
  for (NodeIndex n = 0; n < lowered.nodes.size(); ++n)
    if (lowered.nodes[n].kind == NodeKind::Evict)
      forEachFrame(lowered, lowered.nodes[n], [&](std::int32_t frame) {
        if (evictions[frame].empty() || evictions[frame].back() != n)
          evictions[frame].push_back(n);
      });
  return evictions;
}

/// Two replays of a step, one after the other. All captured nodes of the first end before the second is launched, which
/// is when it may ask for anything; a prefetch that comes after no other operation of its replay waits for what leaves
/// its frames in the one before, as the agent has it. `step` is the lowered one as it is priced.
Description twice(const Description &step, const Description &lowered) {
  const auto count = static_cast<NodeIndex>(step.nodes.size());
  Description both = step;
  both.nodes.insert(both.nodes.end(), step.nodes.begin(), step.nodes.end());
  std::vector<bool> isLast(count, true), isFirst(count, true), comesFirst(count, true);
  for (const Edge &edge : step.edges) {
    both.edges.push_back({edge.from + count, edge.to + count, edge.kind});
    isFirst[edge.to] = false;
    if (!isAdded(step.nodes[edge.to].kind))
      isLast[edge.from] = false;
    if (isAdded(step.nodes[edge.from].kind))
      comesFirst[edge.to] = false;
  }
  Node launch;
  launch.kind = NodeKind::Discard; // takes no time
  both.nodes.insert(both.nodes.begin() + count, launch);
  for (Edge &edge : both.edges)
    for (NodeIndex *end : {&edge.from, &edge.to})
      *end += *end >= count ? 1 : 0;
  for (NodeIndex n = 0; n < count; ++n) {
    if (isLast[n] && !isAdded(step.nodes[n].kind))
      both.edges.push_back({n, count});
    if (isFirst[n])
      both.edges.push_back({count, count + 1 + n});
  }
  const std::map<std::int32_t, std::vector<NodeIndex>> evictions = evictionsByFrame(lowered);
  for (NodeIndex n = 0; n < count; ++n)
    if (lowered.nodes[n].kind == NodeKind::Prefetch && comesFirst[n])
      forEachFrame(step, step.nodes[n], [&](std::int32_t frame) {
        if (const auto found = evictions.find(frame); found != evictions.end())
          for (const NodeIndex eviction : found->second)
            both.edges.push_back({eviction, count + 1 + n});
      });
  return both;
}

/// The operations as the agent carries them out: each is asked for first, and the threads have to do also with those
/// that move no value. `replays` is two of the lowered step, as it is priced, with a node between them.
std::vector<Task> operationsOf(const Description &replays, const Description &lowered, const Machine &machine) {
  std::vector<Task> tasks = tasksWithoutHosted(replays, machine);
  const std::size_t count = lowered.nodes.size();
  const std::vector<std::vector<Traffic>> stretches = hostedStretches(lowered);
  for (std::size_t n = 0; n < count; ++n) {
    const Node &node = lowered.nodes[n];
    tasks[n].hosted = tasks[count + 1 + n].hosted = stretches[n];
    if (!isAdded(node.kind) || node.kind == NodeKind::Advise)
      continue;
    for (Task *task : {&tasks[n], &tasks[count + 1 + n]}) {
      task->delayUs = machine.requestUs;
      if (task->lane != Lane::None || machine.emptyBytesPerSecond <= 0)
        continue;
      task->lane = node.kind == NodeKind::Evict ? Lane::Down : Lane::Up;
      task->overheadUs = emptyUs(machine, node.range.size);
      task->waitsForHosted = true;
    }
  }
  return tasks;
}

/// How long the links take at least for what one replay moves: the first `count` of the tasks. However much of it goes
/// on beside the next one, neither catches up.
double linkWorkUs(const std::vector<Task> &tasks, std::size_t count, const Machine &machine) {
  double upUs = 0, downUs = 0, upOverheadUs = 0, downOverheadUs = 0;
  bool hasHosted = false;
  for (std::size_t n = 0; n < count; ++n) {
    const double bytes = static_cast<double>(tasks[n].bytes) * 1e6;
    const bool isUp = tasks[n].lane == Lane::Up, isDown = tasks[n].lane == Lane::Down;
    // What nodes move themselves goes over the same link.
    double hostedUp = 0, hostedDown = 0;
    hasHosted |= !tasks[n].hosted.empty();
    for (const Traffic &stretch : tasks[n].hosted) {
      hostedUp += static_cast<double>(stretch.upBytes) * 1e6;
      hostedDown += static_cast<double>(stretch.downBytes) * 1e6;
    }
    upUs += ((isUp ? bytes : 0) + hostedUp) / machine.upBytesPerSecond;
    upOverheadUs += isUp ? tasks[n].overheadUs : 0;
    downUs += ((isDown ? bytes : 0) + hostedDown) / machine.downBytesPerSecond;
    downOverheadUs += isDown ? tasks[n].overheadUs : 0;
  }
  // Nodes may lose less to the other direction than copies do.
  const double lost =
      hasHosted ? std::min(interference(machine), 1 / hostedShareOfBoth(machine) - 1) : interference(machine);
  return std::max(
      {togetherUs(upUs, downUs, lost), upUs + upOverheadUs, (downUs + downOverheadUs) / machine.downAtOnce});
}

} // namespace

bool bringsNothing(const Description &lowered, NodeIndex prefetch) {
  const Node &node = lowered.nodes[prefetch];
  const auto touches = [&](const Access &access) {
    return access.buffer == node.buffer && access.range.overlaps(node.range);
  };
  const auto isDiscarded = [&](const Node &other) {
    return other.kind == NodeKind::Discard && other.buffer == node.buffer && other.range.overlaps(node.range);
  };
  if (std::none_of(lowered.nodes.begin(), lowered.nodes.end(), isDiscarded))
    return false;
  bool hasValue = lowered.buffers[node.buffer].liveIn;
  for (NodeIndex user = 0; user < lowered.nodes.size(); ++user)
    for (const Access &access : lowered.nodes[user].accesses) {
      if (!touches(access))
        continue;
      if (user < prefetch) {
        hasValue = hasValue || (reliableMay(access) & modeWrite) != 0;
        continue;
      }
      const bool whole = access.range.offset <= node.range.offset && node.range.end() <= access.range.end();
      return !hasValue || (whole && reliableMust(access) == modeWrite);
    }
  return false;
}

Prediction predictManaged(const Description &lowered, const Machine &machine) {
  assert(lowered.stage == Stage::LoweredManaged && "an agent has its own times");
  const Description step = asPriced(lowered);
  const auto count = static_cast<NodeIndex>(step.nodes.size());
  const Description replays = twice(step, lowered);
  const std::vector<Task> tasks = operationsOf(replays, lowered, machine);
  const Prediction both = predictAsReady(replays, tasks, machine);
  const double launchUs = both.nodes[count].startUs;
  std::vector<NodeTimes> times(both.nodes.begin() + count + 1, both.nodes.end());
  double totalUs = 0;
  for (NodeIndex n = 0; n < count; ++n) {
    times[n].startUs -= launchUs;
    times[n].endUs -= launchUs;
    if (!isAdded(step.nodes[n].kind))
      totalUs = std::max(totalUs, times[n].endUs);
  }
  Prediction prediction = predictionOf(step, std::move(times), totalUs);
  prediction.totalUs = std::max(prediction.totalUs, linkWorkUs(tasks, count, machine));
  // Of the replay before as well: what of this one goes on beside the next is no part of its time.
  const double endUs = launchUs + prediction.totalUs;
  prediction.upBusyUs = underWayUs(replays, both.nodes, movesUp, launchUs, endUs);
  prediction.downBusyUs = underWayUs(replays, both.nodes, movesDown, launchUs, endUs);
  return prediction;
}

} // namespace pumpgraph
