// SPDX-License-Identifier: Apache-2.0
#include "passes/report/Lanes.h"

#include "passes/report/Summary.h"

#include <algorithm>
#include <numeric>

namespace pumpgraph {

namespace {

/// A lane while it is being filled: who was last in it, and until when.
struct Tail {
  NodeIndex node;
  double endUs;
};

} // namespace

static bool isDrawn(const Node &node, const NodeTimes &times) {
  return !isAdded(node.kind) && times.endUs > times.startUs;
}

static std::vector<NodeIndex> byStart(const std::vector<NodeTimes> &times) {
  std::vector<NodeIndex> order(times.size());
  std::iota(order.begin(), order.end(), NodeIndex{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](NodeIndex a, NodeIndex b) { return times[a].startUs < times[b].startUs; });
  return order;
}

static std::vector<std::vector<NodeIndex>> predecessors(const Description &description) {
  std::vector<std::vector<NodeIndex>> result(description.nodes.size());
  for (const Edge &edge : description.edges)
    result[edge.to].push_back(edge.from);
  return result;
}

Lanes assignLanes(const Description &description, const Prediction &prediction) {
  // Times are sums of rounded figures: a gap or overlap this small is none.
  static constexpr double slackUs = 1e-6;
  const std::vector<std::vector<NodeIndex>> before = predecessors(description);
  Lanes lanes;
  lanes.laneOf.resize(description.nodes.size(), 0);
  std::vector<Tail> tails;
  for (const NodeIndex node : byStart(prediction.nodes)) {
    const NodeTimes &times = prediction.nodes[node];
    if (!isDrawn(description.nodes[node], times))
      continue;
    const auto isFree = [&](const Tail &tail) { return tail.endUs <= times.startUs + slackUs; };
    const auto isContinued = [&](const Tail &tail) {
      return isFree(tail) && std::find(before[node].begin(), before[node].end(), tail.node) != before[node].end();
    };
    // A branch stays in its lane while it can; a new one takes the first that is free.
    auto lane = std::find_if(tails.begin(), tails.end(), isContinued);
    if (lane == tails.end())
      lane = std::find_if(tails.begin(), tails.end(), isFree);
    if (lane == tails.end())
      lane = tails.insert(tails.end(), Tail{});
    *lane = {node, times.endUs};
    lanes.laneOf[node] = static_cast<std::uint32_t>(lane - tails.begin());
  }
  lanes.computeLanes = std::max<std::size_t>(tails.size(), 1);
  return lanes;
}

} // namespace pumpgraph
