// SPDX-License-Identifier: Apache-2.0
// Times a step and its nodes: replays of the step, and of a copy of its graph with clocks between the nodes.
#include "runtime/measure/Measuring.h"

#include "runtime/measure/ReplayWatch.h"

#include <algorithm>
#include <chrono>

namespace pumpgraph::runtime {
namespace {

/// Of a long step fewer replays do: at least these, and none that would begin later.
constexpr int leastRepeats = 2;
constexpr std::chrono::seconds measuringTime{2};

class Repeats {
public:
  Repeats(const Driver &driver, int most) : driver_(driver), most_(most) {}
  bool next() {
    const bool goesOn = done_ < leastRepeats || driver_.now() - start_ < measuringTime;
    return goesOn && done_++ < most_;
  }

private:
  const Driver &driver_;
  int most_, done_ = 0;
  Driver::Clock::time_point start_ = driver_.now();
};

} // namespace

Status Measuring::run(const std::function<Status()> &launch) {
  PUMPGRAPH_TRY_WHILE(values_.rewind(), "putting the state back before a run");
  PUMPGRAPH_TRY_WHILE(launch(), "replaying to measure");
  PUMPGRAPH_TRY_WHILE(driver_.streamSynchronize(session_.device.stream), "replaying to measure");
  return {};
}

Expected<double> Measuring::timeReplay(int repeats) {
  PUMPGRAPH_TRY(instantiate(step_));
  ReplayWatch watch(driver_, static_cast<std::size_t>(repeats));
  const auto launch = [&]() -> Status {
    PUMPGRAPH_TRY(watch.beforeLaunch(session_.device.stream));
    PUMPGRAPH_TRY(driver_.graphLaunch(step_.graph.exec, session_.device.stream));
    return watch.afterLaunch(session_.device.stream);
  };
  PUMPGRAPH_TRY(run(launch)); // warms up
  for (Repeats some(driver_, repeats); some.next();)
    PUMPGRAPH_TRY(run(launch));
  const Expected<std::optional<double>> us = watch.medianUs();
  if (!us)
    return tl::unexpected<Error>(us.error());
  return us->value(); // every run is over
}

Expected<std::vector<NodeClocks::Run>> Measuring::timeRuns(int repeats, NodeClocks::Where where) {
  CUgraph copy = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_.graphClone(&copy, step_.graph.handle), "copying the graph to measure it");
  NodeClocks clocks(step_, copy);
  Expected<std::vector<NodeClocks::Run>> runs = timeCopy(copy, clocks, repeats, where);
  clocks.keep();
  driver_.graphDestroy.raw(copy);
  return runs;
}

Expected<std::vector<NodeClocks::Run>> Measuring::timeCopy(CUgraph copy, NodeClocks &clocks, int repeats,
                                                           NodeClocks::Where where) {
  PUMPGRAPH_TRY(clocks.add(where));
  CUgraphExec exec = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_.graphInstantiate(&exec, copy, 0), "instantiating a copy with clocks");
  const auto launch = [&] { return driver_.graphLaunch(exec, session_.device.stream); };
  const auto launchAll = [&]() -> Status {
    PUMPGRAPH_TRY(run(launch)); // warms up
    for (Repeats some(driver_, repeats); some.next();) {
      PUMPGRAPH_TRY(run(launch));
      PUMPGRAPH_TRY(clocks.read());
    }
    return {};
  };
  const Status done = launchAll();
  driver_.graphExecDestroy.raw(exec);
  PUMPGRAPH_TRY(done);
  return clocks.runs();
}

Expected<std::vector<double>> Measuring::timeNodes(int repeats, double stepUs) {
  const Expected<std::vector<NodeClocks::Run>> apart = timeRuns(repeats, NodeClocks::Where::AroundEach);
  if (!apart)
    return tl::unexpected<Error>(apart.error());
  return nodeTimes(step_, *apart, {}, stepUs);
}

Expected<std::vector<double>> Measuring::timeNodesApart(int repeats) {
  const Expected<std::vector<NodeClocks::Run>> runs = timeRuns(repeats, NodeClocks::Where::AroundEach);
  if (!runs)
    return tl::unexpected<Error>(runs.error());
  std::vector<double> costs(step_.captured.nodes.size()); // before there is a plan, so no node runs again
  for (const NodeClocks::Run &run : *runs)
    for (const std::size_t node : run.nodes) // one, but for the last run, which has none
      costs[node] = std::max(0.0, run.us - runs->back().us);
  return costs;
}

Expected<Measurement> measure(StepState &step, int repeats) {
  KeptValues values(step);
  PUMPGRAPH_TRY(values.keep());
  Measuring measuring(step, values);
  const Expected<double> stepUs = measuring.timeReplay(repeats);
  Expected<std::vector<double>> costs =
      stepUs ? measuring.timeNodes(repeats, *stepUs) : tl::unexpected<Error>(stepUs.error());
  const Status restored = values.restore();
  if (!costs)
    return tl::unexpected<Error>(costs.error());
  PUMPGRAPH_TRY_WHILE(restored, "restoring the values after measuring");
  for (std::size_t i = 0; i < costs->size(); ++i)
    step.captured.description.nodes[i].costUs = (*costs)[i];
  step.report.timesAreTold = false;
  return Measurement{*stepUs, costs->size()};
}

} // namespace pumpgraph::runtime
