// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/schedule/Deferral.h"

#include "passes/plan/Knobs.h"

#include <algorithm>
#include <cstddef>

namespace pumpgraph {

namespace {

/// A transfer of one lane, in the schedule at hand.
struct Played {
  DraftNode node = 0;
  double startUs = 0, endUs = 0, latestUs = 0;

  /// The step waits for it; and if it began at the latest, that would be before its present end.
  bool isUrgent(double totalUs) const {
    const double slackUs = latestUs - startUs;
    return slackUs <= knobs::little * totalUs && slackUs < endUs - startUs;
  }
};

} // namespace

std::vector<double> latestStartsUs(const PlannerInput &input, const Draft &draft, const Schedule &schedule) {
  const TaskGraph graph(schedule.order.size(), dependenciesOf(input, draft));
  std::vector<double> latestUs(schedule.order.size(), 0);
  double nextUs[2] = {schedule.totalUs, schedule.totalUs}; // of either lane
  double nextCapturedUs = schedule.totalUs;
  for (auto task = schedule.order.rbegin(); task != schedule.order.rend(); ++task) {
    double byUs = schedule.totalUs;
    for (std::uint32_t next : graph.successors(*task))
      byUs = std::min(byUs, latestUs[next]);
    const double tookUs = schedule.endUs[*task] - schedule.startUs[*task];
    if (*task < draft.capturedCount) {
      latestUs[*task] = nextCapturedUs = std::min(byUs - tookUs, nextCapturedUs);
      continue;
    }
    double &next = nextUs[draft.transfers[*task - draft.capturedCount].kind == NodeKind::Prefetch];
    latestUs[*task] = next = std::min(byUs, next) - tookUs;
  }
  return latestUs;
}

// No cycle comes of it. Along every dependency the latest start does not fall, nor from a captured node to the next,
// which does not start before it. It rises along a deferral: from a transfer that, begun at the latest, would have
// begun before its present end, to one that at the latest begins after that.
Draft deferTransfers(const PlannerInput &input, const Draft &draft, const Schedule &schedule) {
  Draft deferring = draft;
  if (input.machine.bothBytesPerSecond >= input.machine.upBytesPerSecond + input.machine.downBytesPerSecond)
    return deferring;
  const std::vector<double> latestUs = latestStartsUs(input, draft, schedule);
  std::vector<Played> lanes[2];
  for (const DraftNode node : schedule.order)
    if (node >= draft.capturedCount)
      lanes[draft.transfers[node - draft.capturedCount].kind == NodeKind::Prefetch].push_back(
          {node, schedule.startUs[node], schedule.endUs[node], latestUs[node]});
  const double marginUs = knobs::little * schedule.totalUs;
  for (const std::size_t lane : {0, 1}) {
    const std::vector<Played> &others = lanes[1 - lane];
    std::size_t first = 0; // of the others, that ends after the transfer starts
    for (const Played &transfer : lanes[lane]) {
      while (first < others.size() && others[first].endUs <= transfer.startUs)
        ++first;
      // The last of those beside it, and of those that follow on them without a pause, for which it has the time.
      const Played *last = nullptr;
      double untilUs = transfer.endUs;
      for (std::size_t i = first; i < others.size() && others[i].startUs < untilUs; ++i) {
        if (!others[i].isUrgent(schedule.totalUs))
          continue;
        if (others[i].endUs + marginUs > transfer.latestUs)
          break;
        last = &others[i];
        untilUs = std::max(untilUs, last->endUs + marginUs);
      }
      if (last)
        deferring.deferrals.push_back({last->node, transfer.node});
    }
  }
  return deferring;
}

} // namespace pumpgraph
