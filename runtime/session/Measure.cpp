// SPDX-License-Identifier: Apache-2.0
// Times every node of a step: a copy of its graph with the nodes one after another and a clock after each.
#include "runtime/session/Step.h"

#include <algorithm>
#include <cmath>

namespace pumpgraph::runtime {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// What the clocks cost is the same after every node, so it is taken off each first; what is left is scaled. The sum
/// becomes `totalUs`.
void fitToTotal(std::vector<double> &costsUs, double totalUs) {
  double sum = 0;
  for (const double cost : costsUs)
    sum += cost;
  const double clockUs = std::max(0.0, (sum - totalUs) / static_cast<double>(costsUs.size()));
  sum = 0;
  for (double &cost : costsUs) {
    cost = std::max(0.0, cost - clockUs);
    sum += cost;
  }
  for (double &cost : costsUs)
    cost = sum > 0 ? cost * totalUs / sum : totalUs / static_cast<double>(costsUs.size());
}

} // namespace

/// Owns the copies and clocks of one measurement.
class Measuring {
public:
  Measuring(Step &step) : step_(step), session_(step.session_), driver_(*step.session_.driver_) {}
  ~Measuring() {
    if (exec_)
      driver_.graphExecDestroy.raw(exec_);
    if (graph_)
      driver_.graphDestroy.raw(graph_);
    for (const CUevent event : events_)
      driver_.eventDestroy.raw(event);
  }
  Measuring(const Measuring &) = delete;
  Measuring &operator=(const Measuring &) = delete;

  Expected<Measurement> run(int repeats) {
    Description &description = step_.captured_.description;
    PUMPGRAPH_TRY(saveValues());
    std::vector<double> costs;
    const Expected<double> plain = timePlain(repeats);
    Status timed = plain ? Status{} : tl::unexpected<Error>(plain.error());
    if (timed)
      timed = timeNodes(repeats, costs);
    PUMPGRAPH_TRY(restoreValues());
    PUMPGRAPH_TRY(timed);
    if (!costs.empty())
      fitToTotal(costs, *plain);
    for (std::size_t i = 0; i < costs.size(); ++i)
      description.nodes[i].costUs = costs[i];
    return Measurement{*plain, costs.size()};
  }

private:
  Status saveValues() {
    PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device before measuring");
    const Description &description = step_.captured_.description;
    saved_.resize(description.buffers.size());
    for (BufferIndex buffer = 0; buffer < saved_.size(); ++buffer) {
      if (!description.buffers[buffer].liveIn && !description.buffers[buffer].liveOut)
        continue;
      saved_[buffer].resize(description.buffers[buffer].size);
      PUMPGRAPH_TRY(step_.readValue(buffer, saved_[buffer].data()));
    }
    return {};
  }

  Status restoreValues() {
    PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device after measuring");
    for (BufferIndex buffer = 0; buffer < saved_.size(); ++buffer)
      if (!saved_[buffer].empty())
        PUMPGRAPH_TRY(step_.writeValue(buffer, saved_[buffer].data()));
    return {};
  }

  Expected<CUevent> clock() {
    CUevent event = nullptr;
    PUMPGRAPH_TRY_WHILE(driver_.eventCreate(&event, CU_EVENT_DEFAULT), "creating clock {}", events_.size());
    events_.push_back(event);
    return event;
  }

  Status launchAndWait(CUgraphExec exec) {
    PUMPGRAPH_TRY_WHILE(driver_.graphLaunch(exec, session_.stream_), "replaying to measure");
    PUMPGRAPH_TRY_WHILE(driver_.streamSynchronize(session_.stream_), "replaying to measure");
    return {};
  }

  Expected<double> timePlain(int repeats) {
    PUMPGRAPH_TRY(step_.instantiate());
    const Expected<CUevent> start = clock(), end = clock();
    if (!start || !end)
      return tl::unexpected<Error>(start ? end.error() : start.error());
    PUMPGRAPH_TRY(launchAndWait(step_.exec_)); // warms up
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) {
      PUMPGRAPH_TRY(driver_.eventRecord(*start, session_.stream_));
      PUMPGRAPH_TRY_WHILE(driver_.graphLaunch(step_.exec_, session_.stream_), "replaying to measure");
      PUMPGRAPH_TRY(driver_.eventRecord(*end, session_.stream_));
      PUMPGRAPH_TRY_WHILE(driver_.streamSynchronize(session_.stream_), "replaying to measure");
      float ms = 0;
      PUMPGRAPH_TRY(driver_.eventElapsedTime(&ms, *start, *end));
      times.push_back(static_cast<double>(ms) * 1e3);
    }
    return median(std::move(times));
  }

  /// Chains the copy's nodes in topological order, a clock before the first and after each.
  Status addClocks() {
    PUMPGRAPH_TRY_WHILE(driver_.graphClone(&graph_, step_.graph_), "copying the graph to measure it");
    GraphEditor editor(driver_, graph_, session_.context_);
    CUgraphNode previous = nullptr;
    const auto add = [&](CUgraphNode after) -> Status {
      const Expected<CUevent> event = clock();
      if (!event)
        return tl::unexpected<Error>(event.error());
      const Expected<CUgraphNode> record = editor.addEventRecord(*event);
      if (!record)
        return tl::unexpected<Error>(record.error());
      previous = *record;
      return after ? editor.addEdge(after, previous) : Status{};
    };
    firstClock_ = events_.size();
    PUMPGRAPH_TRY(add(nullptr));
    for (const CUgraphNode original : step_.captured_.nodes) {
      CUgraphNode node = nullptr;
      PUMPGRAPH_TRY_WHILE(driver_.graphNodeFindInClone(&node, original, graph_), "finding a node in the copy");
      PUMPGRAPH_TRY(editor.addEdge(previous, node));
      PUMPGRAPH_TRY(add(node));
    }
    editor.commit();
    PUMPGRAPH_TRY_WHILE(driver_.graphInstantiate(&exec_, graph_, 0), "instantiating the copy with {} clocks",
                        events_.size());
    return {};
  }

  Status timeNodes(int repeats, std::vector<double> &costsUs) {
    const std::size_t nodes = step_.captured_.nodes.size();
    PUMPGRAPH_TRY(addClocks());
    PUMPGRAPH_TRY(launchAndWait(exec_)); // warms up
    std::vector<std::vector<double>> times(nodes);
    for (int i = 0; i < repeats; ++i) {
      PUMPGRAPH_TRY(launchAndWait(exec_));
      for (std::size_t node = 0; node < nodes; ++node) {
        float ms = 0;
        PUMPGRAPH_TRY_WHILE(driver_.eventElapsedTime(&ms, events_[firstClock_ + node], events_[firstClock_ + node + 1]),
                            "reading the clock of node {}", node);
        times[node].push_back(static_cast<double>(ms) * 1e3);
      }
    }
    for (std::vector<double> &one : times)
      costsUs.push_back(median(std::move(one)));
    return {};
  }

  Step &step_;
  Session &session_;
  const Driver &driver_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  std::vector<CUevent> events_;
  std::size_t firstClock_ = 0;
  std::vector<std::vector<char>> saved_; ///< by BufferIndex
};

Expected<Measurement> Step::measure(int repeats) {
  const std::lock_guard lock(session_.mutex_);
  const ContextScope scope(*session_.driver_, session_.context_);
  if (repeats < 1)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "{} repeats", repeats);
  if (rewritten())
    return fail(PUMPGRAPH_INVALID_ARGUMENT,
                "\"{}\" is rewritten; measure it in a session with room for all of it, adopted as captured",
                captured_.description.name);
  return Measuring(*this).run(repeats);
}

} // namespace pumpgraph::runtime
