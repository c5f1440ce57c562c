// SPDX-License-Identifier: Apache-2.0
// Times every node of a step: a copy of its graph with the captured nodes one after another and clocks between them.
#include "runtime/session/Measuring.h"

#include <algorithm>
#include <cmath>

namespace pumpgraph::runtime {
namespace {

double sumOf(const std::vector<double> &costsUs) {
  double sum = 0;
  for (const double cost : costsUs)
    sum += cost;
  return sum;
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

} // namespace

void Measuring::dropCopy() {
  if (exec_)
    driver_.graphExecDestroy.raw(std::exchange(exec_, nullptr));
  if (copy_)
    driver_.graphDestroy.raw(std::exchange(copy_, nullptr));
  for (const CUevent clock : clocks_)
    driver_.eventDestroy.raw(clock);
  clocks_.clear();
  clocksOf_.clear();
}

Status Measuring::keepValues() {
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device before measuring");
  const Description &description = step_.captured_.description;
  std::uint64_t bytes = 0;
  for (const Buffer &buffer : description.buffers)
    bytes += buffer.liveIn || buffer.liveOut ? buffer.size : 0;
  if (bytes > availableHostBytes())
    return fail(PUMPGRAPH_OUT_OF_HOST_MEMORY, "measuring keeps a copy of {}; the system has {} left", bytesText(bytes),
                bytesText(availableHostBytes()));
  values_.resize(description.buffers.size());
  for (BufferIndex buffer = 0; buffer < values_.size(); ++buffer) {
    if (!description.buffers[buffer].liveIn && !description.buffers[buffer].liveOut)
      continue;
    values_[buffer].resize(description.buffers[buffer].size);
    PUMPGRAPH_TRY(step_.readValue(buffer, values_[buffer].data()));
  }
  return {};
}

Status Measuring::restoreValues() {
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device after measuring");
  for (BufferIndex buffer = 0; buffer < values_.size(); ++buffer)
    if (!values_[buffer].empty())
      PUMPGRAPH_TRY(step_.writeValue(buffer, values_[buffer].data()));
  return {};
}

Expected<CUevent> Measuring::newClock() {
  CUevent event = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_.eventCreate(&event, CU_EVENT_DEFAULT), "creating clock {}", clocks_.size());
  clocks_.push_back(event);
  return event;
}

Status Measuring::launchAndWait(CUgraphExec exec) {
  PUMPGRAPH_TRY_WHILE(driver_.graphLaunch(exec, session_.stream_), "replaying to measure");
  PUMPGRAPH_TRY_WHILE(driver_.streamSynchronize(session_.stream_), "replaying to measure");
  return {};
}

Expected<double> Measuring::elapsedUs(std::size_t from, std::size_t to) const {
  float ms = 0;
  PUMPGRAPH_TRY_WHILE(driver_.eventElapsedTime(&ms, clocks_[from], clocks_[to]), "reading clock {}", to);
  return static_cast<double>(ms) * 1e3;
}

Expected<double> Measuring::timeReplay(int repeats) {
  dropCopy();
  PUMPGRAPH_TRY(step_.instantiate());
  const Expected<CUevent> start = newClock(), end = newClock();
  if (!start || !end)
    return tl::unexpected<Error>(start ? end.error() : start.error());
  PUMPGRAPH_TRY(launchAndWait(step_.exec_)); // warms up
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    PUMPGRAPH_TRY(driver_.eventRecord(*start, session_.stream_));
    PUMPGRAPH_TRY_WHILE(driver_.graphLaunch(step_.exec_, session_.stream_), "replaying to measure");
    PUMPGRAPH_TRY(driver_.eventRecord(*end, session_.stream_));
    PUMPGRAPH_TRY_WHILE(driver_.streamSynchronize(session_.stream_), "replaying to measure");
    const Expected<double> took = elapsedUs(0, 1);
    if (!took)
      return took;
    times.push_back(*took);
  }
  return median(std::move(times));
}

Expected<CUgraphNode> Measuring::inCopy(CUgraphNode original) const {
  CUgraphNode node = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_.graphNodeFindInClone(&node, original, copy_), "finding a node in the copy");
  return node;
}

/// Replaces `clock` by a new one that waits for it.
Status Measuring::addClock(GraphEditor &editor, CUgraphNode &clock) {
  const Expected<CUevent> event = newClock();
  if (!event)
    return tl::unexpected<Error>(event.error());
  const Expected<CUgraphNode> record = editor.addEventRecord(*event);
  if (!record)
    return tl::unexpected<Error>(record.error());
  const CUgraphNode previous = std::exchange(clock, *record);
  return previous ? editor.addEdge(previous, clock) : Status{};
}

/// Clock, node, clock, node, ...: with all memory on the device a node waits for nothing but the one before it.
Status Measuring::chainCapturedNodes() {
  GraphEditor editor(driver_, copy_, session_.context_);
  CUgraphNode last = nullptr;
  PUMPGRAPH_TRY(addClock(editor, last));
  for (const CUgraphNode original : step_.captured_.nodes) {
    const Expected<CUgraphNode> node = inCopy(original);
    if (!node)
      return tl::unexpected<Error>(node.error());
    PUMPGRAPH_TRY(editor.addEdge(last, *node));
    last = *node;
    PUMPGRAPH_TRY(addClock(editor, last));
    clocksOf_.push_back({clocks_.size() - 2, clocks_.size() - 1});
  }
  editor.commit();
  return {};
}

/// The copies stay beside the chain, where they always run. The clock before a node waits for them as the node does, so
/// that a stall is nobody's time.
Status Measuring::chainRewrittenNodes() {
  const RewrittenStep &rewritten = step_.rewritten_;
  const std::vector<Node> &nodes = rewritten.description.nodes;
  std::vector<std::vector<NodeIndex>> copiesBefore(nodes.size());
  for (const Edge &edge : rewritten.description.edges)
    if (isCopy(nodes[edge.from].kind) && !isCopy(nodes[edge.to].kind))
      copiesBefore[edge.to].push_back(edge.from);

  GraphEditor editor(driver_, copy_, session_.context_);
  clocksOf_.resize(step_.captured_.nodes.size());
  CUgraphNode last = nullptr;
  for (NodeIndex index = 0; index < nodes.size(); ++index) {
    if (isCopy(nodes[index].kind))
      continue;
    PUMPGRAPH_TRY(addClock(editor, last));
    for (const NodeIndex copy : copiesBefore[index]) {
      const Expected<CUgraphNode> waitedFor = inCopy(rewritten.nodes[copy]);
      if (!waitedFor)
        return tl::unexpected<Error>(waitedFor.error());
      PUMPGRAPH_TRY(editor.addEdge(*waitedFor, last));
    }
    const Expected<CUgraphNode> node = inCopy(rewritten.nodes[index]);
    if (!node)
      return tl::unexpected<Error>(node.error());
    PUMPGRAPH_TRY(editor.addEdge(last, *node));
    last = *node;
    PUMPGRAPH_TRY(addClock(editor, last));
    clocksOf_[static_cast<std::size_t>(nodes[index].captured)] = {clocks_.size() - 2, clocks_.size() - 1};
  }
  editor.commit();
  return {};
}

Expected<std::vector<double>> Measuring::timeNodes(int repeats, double stepUs) {
  dropCopy();
  PUMPGRAPH_TRY_WHILE(driver_.graphClone(&copy_, step_.graph_), "copying the graph to measure it");
  PUMPGRAPH_TRY(step_.rewritten() ? chainRewrittenNodes() : chainCapturedNodes());
  PUMPGRAPH_TRY_WHILE(driver_.graphInstantiate(&exec_, copy_, 0), "instantiating the copy with {} clocks",
                      clocks_.size());
  PUMPGRAPH_TRY(launchAndWait(exec_)); // warms up
  std::vector<std::vector<double>> times(clocksOf_.size());
  for (int i = 0; i < repeats; ++i) {
    PUMPGRAPH_TRY(launchAndWait(exec_));
    for (std::size_t node = 0; node < times.size(); ++node) {
      const Expected<double> took = elapsedUs(clocksOf_[node].before, clocksOf_[node].after);
      if (!took)
        return tl::unexpected<Error>(took.error());
      times[node].push_back(*took);
    }
  }
  std::vector<double> costs;
  for (std::vector<double> &one : times)
    costs.push_back(median(std::move(one)));
  // Without transfers the nodes are all there is to a step. With them those may be the longer part.
  if (!costs.empty() && (!step_.movesAnything() || sumOf(costs) > stepUs))
    fitToTotal(costs, stepUs);
  return costs;
}

Expected<Measurement> Step::measure(int repeats) {
  const std::lock_guard lock(session_.mutex_);
  const ContextScope scope(*session_.driver_, session_.context_);
  if (repeats < 1)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "{} repeats", repeats);
  if (movesAnything())
    return fail(PUMPGRAPH_INVALID_ARGUMENT,
                "\"{}\" is rewritten; measure it in a session with room for all of it, adopted as captured, or plan it "
                "again",
                captured_.description.name);
  PUMPGRAPH_TRY(session_.checkNothingMapped(*this, "measured"));
  PUMPGRAPH_TRY(session_.putInForce(*this));
  PUMPGRAPH_TRY(checkMemory());
  Measuring measuring(*this);
  PUMPGRAPH_TRY(measuring.keepValues());
  const Expected<double> stepUs = measuring.timeReplay(repeats);
  Expected<std::vector<double>> costs =
      stepUs ? measuring.timeNodes(repeats, *stepUs) : tl::unexpected<Error>(stepUs.error());
  PUMPGRAPH_TRY(measuring.restoreValues());
  if (!costs)
    return tl::unexpected<Error>(costs.error());
  for (std::size_t i = 0; i < costs->size(); ++i)
    captured_.description.nodes[i].costUs = (*costs)[i];
  return Measurement{*stepUs, costs->size()};
}

} // namespace pumpgraph::runtime
