// SPDX-License-Identifier: Apache-2.0
// Times every node of a step: a copy of its graph with the captured nodes one after another and clocks between them.
// Clocks keep the nodes apart, and cost more than a short kernel. What they cost is known where nodes that need not
// wait for anything between them are timed together too.
#include "runtime/session/Measuring.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <span>

namespace pumpgraph::runtime {
namespace {

/// Of a long step fewer replays do: at least these, and none that would begin later.
constexpr int leastRepeats = 2;
constexpr std::chrono::seconds measuringTime{2};

class Repeats {
public:
  explicit Repeats(int most) : most_(most) {}
  bool next() {
    const bool goesOn = done_ < leastRepeats || std::chrono::steady_clock::now() - start_ < measuringTime;
    return goesOn && done_++ < most_;
  }

private:
  int most_, done_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

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

} // namespace

void Measuring::dropCopy() {
  if (exec_)
    driver_.graphExecDestroy.raw(std::exchange(exec_, nullptr));
  if (copy_)
    driver_.graphDestroy.raw(std::exchange(copy_, nullptr));
  for (const CUevent clock : clocks_)
    driver_.eventDestroy.raw(clock);
  clocks_.clear();
  runs_.clear();
}

Status Measuring::keepValues() {
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device before measuring");
  const Description &description = step_.captured_.description;
  std::uint64_t bytes = 0;
  for (const Buffer &buffer : description.buffers)
    bytes += buffer.liveIn || buffer.liveOut ? buffer.size : 0;
  for (const BlockId id : step_.captured_.besides)
    bytes += session_.heap_->block(id).hasMemory() ? session_.heap_->block(id).bytes() : 0;
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
  // Nodes may reach these by addresses in memory.
  besides_.resize(step_.captured_.besides.size());
  for (std::size_t i = 0; i < besides_.size(); ++i)
    if (const Block &block = session_.heap_->block(step_.captured_.besides[i]); block.hasMemory()) {
      besides_[i].resize(block.bytes());
      PUMPGRAPH_TRY_WHILE(driver_.memcpyDtoHAsync(besides_[i].data(), block.address, block.bytes(), session_.stream_),
                          "reading \"{}\"", session_.heap_->nameAt(block.address));
    }
  PUMPGRAPH_TRY_WHILE(driver_.streamSynchronize(session_.stream_), "reading what the step may reach");
  return {};
}

Status Measuring::restoreValues() {
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device after measuring");
  Status all; // what can be restored is
  for (BufferIndex buffer = 0; buffer < values_.size(); ++buffer)
    if (!values_[buffer].empty())
      keepFirst(all, step_.writeValue(buffer, values_[buffer].data()));
  for (std::size_t i = 0; i < besides_.size(); ++i)
    if (const Block &block = session_.heap_->block(step_.captured_.besides[i]); !besides_[i].empty())
      keepFirst(all, driver_.memcpyHtoDAsync(block.address, besides_[i].data(), block.bytes(), session_.stream_));
  keepFirst(all, driver_.streamSynchronize(session_.stream_));
  return all;
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
  for (Repeats some(repeats); some.next();) {
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

/// A run begins with the clock that was added last.
void Measuring::beginRun() {
  runs_.push_back({clocks_.size() - 1, 0, {}});
}

/// Behind `last`, with an edge of its own unless it `follows` that already.
Status Measuring::addNode(GraphEditor &editor, CUgraphNode &last, CUgraphNode original, std::size_t captured,
                          bool follows) {
  const Expected<CUgraphNode> node = inCopy(original);
  if (!node)
    return tl::unexpected<Error>(node.error());
  if (!follows)
    PUMPGRAPH_TRY(editor.addEdge(last, *node));
  last = *node;
  runs_.back().nodes.push_back(captured);
  return {};
}

Status Measuring::endRun(GraphEditor &editor, CUgraphNode &last) {
  runs_.back().after = clocks_.size();
  return addClock(editor, last);
}

/// Clock, node, clock, node, ...: with all memory on the device a node waits for nothing but the one before it.
Status Measuring::chainCapturedNodes() {
  GraphEditor editor(driver_, copy_, session_.context_);
  CUgraphNode last = nullptr;
  PUMPGRAPH_TRY(addClock(editor, last));
  const std::vector<CUgraphNode> &nodes = step_.captured_.nodes;
  for (std::size_t index = 0; index < nodes.size(); ++index) {
    beginRun();
    PUMPGRAPH_TRY(addNode(editor, last, nodes[index], index, false));
    PUMPGRAPH_TRY(endRun(editor, last));
  }
  beginRun();
  PUMPGRAPH_TRY(endRun(editor, last));
  editor.commit();
  return {};
}

/// The copies stay beside the chain, where they always run. The clock before a node waits for them as the node does, so
/// that a stall is nobody's time.
Status Measuring::chainRewrittenNodes(Clocks clocks) {
  const RewrittenStep &rewritten = step_.rewritten_;
  const std::vector<Node> &nodes = rewritten.description.nodes;
  std::vector<std::vector<NodeIndex>> before(nodes.size());
  for (const Edge &edge : rewritten.description.edges)
    before[edge.to].push_back(edge.from);

  GraphEditor editor(driver_, copy_, session_.context_);
  CUgraphNode last = nullptr;
  NodeIndex lastIndex = 0;
  for (NodeIndex index = 0; index < nodes.size(); ++index) {
    if (isCopy(nodes[index].kind))
      continue;
    const auto firstOther = std::partition(before[index].begin(), before[index].end(),
                                           [&](NodeIndex other) { return isCopy(nodes[other].kind); });
    const std::span<const NodeIndex> copies(before[index].begin(), firstOther);
    const bool isFirst = !last || clocks == Clocks::AroundEach || !copies.empty();
    if (isFirst) {
      if (last)
        PUMPGRAPH_TRY(endRun(editor, last));
      PUMPGRAPH_TRY(addClock(editor, last));
      beginRun();
      for (const NodeIndex copy : copies) {
        const Expected<CUgraphNode> waitedFor = inCopy(rewritten.nodes[copy]);
        if (!waitedFor)
          return tl::unexpected<Error>(waitedFor.error());
        PUMPGRAPH_TRY(editor.addEdge(*waitedFor, last));
      }
    }
    const bool follows = !isFirst && std::find(firstOther, before[index].end(), lastIndex) != before[index].end();
    PUMPGRAPH_TRY(
        addNode(editor, last, rewritten.nodes[index], static_cast<std::size_t>(nodes[index].captured), follows));
    lastIndex = index;
  }
  if (last)
    PUMPGRAPH_TRY(endRun(editor, last));
  editor.commit();
  return {};
}

Expected<std::vector<Measuring::Run>> Measuring::timeRuns(int repeats, Clocks clocks) {
  dropCopy();
  PUMPGRAPH_TRY_WHILE(driver_.graphClone(&copy_, step_.graph_), "copying the graph to measure it");
  PUMPGRAPH_TRY(step_.rewritten() ? chainRewrittenNodes(clocks) : chainCapturedNodes());
  PUMPGRAPH_TRY_WHILE(driver_.graphInstantiate(&exec_, copy_, 0), "instantiating the copy with {} clocks",
                      clocks_.size());
  PUMPGRAPH_TRY(launchAndWait(exec_)); // warms up
  std::vector<std::vector<double>> times(runs_.size());
  for (Repeats some(repeats); some.next();) {
    PUMPGRAPH_TRY(launchAndWait(exec_));
    for (std::size_t run = 0; run < times.size(); ++run) {
      const Expected<double> took = elapsedUs(runs_[run].before, runs_[run].after);
      if (!took)
        return tl::unexpected<Error>(took.error());
      times[run].push_back(*took);
    }
  }
  for (std::size_t run = 0; run < times.size(); ++run)
    runs_[run].us = median(std::move(times[run]));
  return runs_;
}

Expected<std::vector<double>> Measuring::timeNodes(int repeats, double stepUs) {
  const Expected<std::vector<Run>> single = timeRuns(repeats, Clocks::AroundEach);
  if (!single)
    return tl::unexpected<Error>(single.error());
  std::vector<double> costs(step_.captured_.nodes.size());
  for (const Run &run : *single)
    for (const std::size_t node : run.nodes) // one, or none
      costs[node] = run.us;
  if (step_.movesAnything()) {
    const Expected<std::vector<Run>> together = timeRuns(repeats, Clocks::WhereNodesWait);
    if (!together)
      return tl::unexpected<Error>(together.error());
    takeOffClocks(costs, *together);
  }
  // Without transfers the nodes are all there is to a step. With them those may be the longer part.
  if (!costs.empty() && (!step_.movesAnything() || sumOf(costs) > stepUs))
    fitToTotal(costs, stepUs);
  return costs;
}

Expected<std::vector<double>> Measuring::timeNodesApart(int repeats) {
  const Expected<std::vector<Run>> runs = timeRuns(repeats, Clocks::AroundEach);
  if (!runs)
    return tl::unexpected<Error>(runs.error());
  std::vector<double> costs(step_.captured_.nodes.size());
  for (const Run &run : *runs)
    for (const std::size_t node : run.nodes) // one, but for the last run, which has none
      costs[node] = std::max(0.0, run.us - runs->back().us);
  return costs;
}

void Measuring::takeOffClocks(std::vector<double> &costsUs, const std::vector<Run> &together) {
  const auto apartUs = [&](const Run &run) {
    return std::accumulate(run.nodes.begin(), run.nodes.end(), 0.0,
                           [&](double sum, std::size_t node) { return sum + costsUs[node]; });
  };
  double excessUs = 0;
  std::size_t clocks = 0;
  for (const Run &run : together) {
    excessUs += run.nodes.size() > 1 ? apartUs(run) - run.us : 0;
    clocks += run.nodes.size() - 1;
  }
  const double clockUs = clocks == 0 ? 0 : std::max(0.0, excessUs / static_cast<double>(clocks));
  for (const Run &run : together) {
    std::vector<double> ofRun;
    for (const std::size_t node : run.nodes)
      ofRun.push_back(costsUs[node]);
    fitToTotal(ofRun, std::max(0.0, run.us - clockUs));
    for (std::size_t i = 0; i < ofRun.size(); ++i)
      costsUs[run.nodes[i]] = ofRun[i];
  }
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
