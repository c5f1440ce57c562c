// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/NodeClocks.h"

#include "runtime/measure/ReplayWatch.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace pumpgraph::runtime {
namespace {

double sumOf(const std::vector<double> &costsUs) {
  return std::accumulate(costsUs.begin(), costsUs.end(), 0.0);
}

/// What the clocks cost is the same after every node, so it is taken off each first; what is left is scaled. The sum
/// becomes `totalUs`.
void fitToTotal(std::vector<double> &costsUs, double totalUs) {
  const double clockUs = std::max(0.0, (sumOf(costsUs) - totalUs) / static_cast<double>(costsUs.size()));
  for (double &cost : costsUs)
    cost = std::max(0.0, cost - clockUs);
  const double sum = sumOf(costsUs);
  for (double &cost : costsUs)
    cost = sum > 0 ? cost * totalUs / sum : totalUs / static_cast<double>(costsUs.size());
}

/// Times of nodes, of some of which there are several.
class Times {
public:
  explicit Times(std::size_t nodes) : sums_(nodes, 0.0), counts_(nodes, 0) {}
  void add(std::size_t node, double us) {
    sums_[node] += us;
    ++counts_[node];
  }
  /// Of each node the mean of its times; what it was where there are none.
  void giveTo(std::vector<double> &costsUs) const {
    for (std::size_t node = 0; node < sums_.size(); ++node)
      if (counts_[node] != 0)
        costsUs[node] = sums_[node] / static_cast<double>(counts_[node]);
  }

private:
  std::vector<double> sums_;
  std::vector<std::size_t> counts_;
};

/// The costs of these nodes, each as often as it is among them.
std::vector<double> costsOf(const std::vector<std::size_t> &nodes, const std::vector<double> &costsUs) {
  std::vector<double> costs;
  for (const std::size_t node : nodes)
    costs.push_back(costsUs[node]);
  return costs;
}

std::vector<std::size_t> nodesOf(const std::vector<NodeClocks::Run> &runs) {
  std::vector<std::size_t> nodes;
  for (const NodeClocks::Run &run : runs)
    nodes.insert(nodes.end(), run.nodes.begin(), run.nodes.end());
  return nodes;
}

} // namespace

NodeClocks::NodeClocks(const StepState &step, CUgraph graph)
    : step_(step), driver_(*step.session.driver), graph_(graph), isCopy_(graph != step.graph.handle),
      editor_(driver_, graph, step.session.device.context) {}

NodeClocks::~NodeClocks() {
  if (!editor_.undo())
    return; // nodes of the graph still name the clocks
  for (const CUevent clock : clocks_)
    driver_.eventDestroy.raw(clock);
}

Status NodeClocks::undo() {
  return editor_.undo();
}

Status NodeClocks::add(Where where) {
  PUMPGRAPH_TRY(step_.isRewritten() ? chainRewrittenNodes(where) : chainCapturedNodes());
  times_.resize(runs_.size());
  return {};
}

Status NodeClocks::read() {
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    float ms = 0;
    PUMPGRAPH_TRY_WHILE(driver_.eventElapsedTime(&ms, clocks_[runs_[run].before], clocks_[runs_[run].after]),
                        "reading clock {}", runs_[run].after);
    times_[run].push_back(static_cast<double>(ms) * 1e3);
  }
  return {};
}

void NodeClocks::forget() {
  times_.assign(runs_.size(), {});
}

std::vector<NodeClocks::Run> NodeClocks::runs() const {
  std::vector<Run> runs = runs_;
  for (std::size_t run = 0; run < runs.size(); ++run)
    runs[run].us = median(times_[run]);
  return runs;
}

Expected<CUgraphNode> NodeClocks::inGraph(CUgraphNode node) const {
  if (!isCopy_)
    return node;
  CUgraphNode copied = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_.graphNodeFindInClone(&copied, node, graph_), "finding a node in the copy");
  return copied;
}

/// Replaces `clock` by a new one that waits for it.
Status NodeClocks::addClock(CUgraphNode &clock) {
  CUevent event = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_.eventCreate(&event, CU_EVENT_DEFAULT), "creating clock {}", clocks_.size());
  clocks_.push_back(event);
  const Expected<CUgraphNode> record = editor_.addEventRecord(event);
  if (!record)
    return tl::unexpected<Error>(record.error());
  const CUgraphNode previous = std::exchange(clock, *record);
  return previous ? editor_.addEdge(previous, clock) : Status{};
}

/// A run begins with the clock that was added last.
void NodeClocks::beginRun() {
  runs_.push_back({clocks_.size() - 1, 0, {}});
}

/// Behind `last`, with an edge of its own unless it `follows` that already.
Status NodeClocks::addNode(CUgraphNode &last, CUgraphNode original, std::size_t captured, bool follows) {
  const Expected<CUgraphNode> node = inGraph(original);
  if (!node)
    return tl::unexpected<Error>(node.error());
  if (!follows)
    PUMPGRAPH_TRY(editor_.addEdge(last, *node));
  last = *node;
  runs_.back().nodes.push_back(captured);
  return {};
}

Status NodeClocks::endRun(CUgraphNode &last) {
  runs_.back().after = clocks_.size();
  return addClock(last);
}

/// Clock, node, clock, node, ...: with all memory on the device a node waits for nothing but the one before it.
Status NodeClocks::chainCapturedNodes() {
  CUgraphNode last = nullptr;
  PUMPGRAPH_TRY(addClock(last));
  const std::vector<CUgraphNode> &nodes = step_.captured.nodes;
  for (std::size_t index = 0; index < nodes.size(); ++index) {
    beginRun();
    PUMPGRAPH_TRY(addNode(last, nodes[index], index, false));
    PUMPGRAPH_TRY(endRun(last));
  }
  beginRun();
  return endRun(last);
}

/// The copies stay beside the chain, where they always run. The clock before a node waits for them as the node does, so
/// that a stall is nobody's time.
Status NodeClocks::chainRewrittenNodes(Where where) {
  const RewrittenStep &rewritten = step_.graph.readBack;
  const std::vector<Node> &nodes = rewritten.description.nodes;
  std::vector<std::vector<NodeIndex>> before(nodes.size());
  for (const Edge &edge : rewritten.description.edges)
    before[edge.to].push_back(edge.from);

  CUgraphNode last = nullptr;
  NodeIndex lastIndex = 0;
  for (NodeIndex index = 0; index < nodes.size(); ++index) {
    if (isCopy(nodes[index].kind))
      continue;
    const auto firstOther = std::partition(before[index].begin(), before[index].end(),
                                           [&](NodeIndex other) { return isCopy(nodes[other].kind); });
    const std::span<const NodeIndex> copies(before[index].begin(), firstOther);
    const bool isFirst = !last || where == Where::AroundEach || !copies.empty();
    if (isFirst) {
      if (last)
        PUMPGRAPH_TRY(endRun(last));
      PUMPGRAPH_TRY(addClock(last));
      beginRun();
      for (const NodeIndex copy : copies) {
        const Expected<CUgraphNode> waitedFor = inGraph(rewritten.nodes[copy]);
        if (!waitedFor)
          return tl::unexpected<Error>(waitedFor.error());
        PUMPGRAPH_TRY(editor_.addEdge(*waitedFor, last));
      }
    }
    const bool follows = !isFirst && std::find(firstOther, before[index].end(), lastIndex) != before[index].end();
    PUMPGRAPH_TRY(addNode(last, rewritten.nodes[index], static_cast<std::size_t>(computedNode(nodes[index])), follows));
    lastIndex = index;
  }
  return last ? endRun(last) : Status{};
}

void takeOffClocks(std::vector<double> &costsUs, const std::vector<NodeClocks::Run> &together) {
  const auto apartUs = [&](const NodeClocks::Run &run) {
    return std::accumulate(run.nodes.begin(), run.nodes.end(), 0.0,
                           [&](double sum, std::size_t node) { return sum + costsUs[node]; });
  };
  double excessUs = 0;
  std::size_t clocks = 0;
  for (const NodeClocks::Run &run : together) {
    excessUs += run.nodes.size() > 1 ? apartUs(run) - run.us : 0;
    clocks += run.nodes.size() - 1;
  }
  const double clockUs = clocks == 0 ? 0 : std::max(0.0, excessUs / static_cast<double>(clocks));
  Times times(costsUs.size());
  for (const NodeClocks::Run &run : together) {
    std::vector<double> ofRun = costsOf(run.nodes, costsUs);
    fitToTotal(ofRun, std::max(0.0, run.us - clockUs));
    for (std::size_t i = 0; i < ofRun.size(); ++i)
      times.add(run.nodes[i], ofRun[i]);
  }
  times.giveTo(costsUs);
}

std::vector<double> nodeTimes(const StepState &step, const std::vector<NodeClocks::Run> &apart,
                              const std::vector<NodeClocks::Run> &together, double stepUs) {
  std::vector<double> costs(step.captured.description.nodes.size());
  Times times(costs.size());
  for (const NodeClocks::Run &run : apart)
    for (const std::size_t node : run.nodes) // one, or none
      times.add(node, run.us);
  times.giveTo(costs);
  if (!together.empty())
    takeOffClocks(costs, together);
  // Without transfers the nodes are all there is to a step. With them those may be the longer part.
  const std::vector<std::size_t> nodes = nodesOf(apart);
  if (std::vector<double> all = costsOf(nodes, costs); !all.empty() && (together.empty() || sumOf(all) > stepUs)) {
    fitToTotal(all, stepUs);
    for (std::size_t i = 0; i < all.size(); ++i)
      costs[nodes[i]] = all[i]; // the same for all runs of a node
  }
  return costs;
}

} // namespace pumpgraph::runtime
