// SPDX-License-Identifier: Apache-2.0
#include "runtime/state/StepState.h"

#include <algorithm>
#include <utility>

namespace pumpgraph::runtime {

StepState::StepState(SessionState &owner, CUgraph captured) : session(owner) {
  graph.handle = captured;
}

StepState::~StepState() {
  const Driver &driver = *session.driver;
  planning.replanner.reset(); // its clocks are in the graph
  if (graph.edits)
    graph.edits->commit(); // the caller's graph stays as it is
  if (graph.exec)
    driver.graphExecDestroy.raw(graph.exec);
  if (graph.original)
    driver.graphDestroy.raw(graph.original);
  if (graph.isOwned && graph.handle)
    driver.graphDestroy.raw(graph.handle);
}

bool movesAnything(const StepState &step) {
  const Description &lowered = step.plan.lowered;
  const bool hosts = std::any_of(lowered.buffers.begin(), lowered.buffers.end(),
                                 [](const Buffer &buffer) { return !buffer.hosted.empty(); });
  if (step.memory.managed)
    return hosts || step.memory.managed->movesAnything();
  return step.isRewritten() && (hosts || std::any_of(lowered.nodes.begin(), lowered.nodes.end(),
                                                     [](const Node &node) { return isCopy(node.kind); }));
}

void beginPlan(StepState &step, std::string costs, std::string why) {
  step.history.plans.push_back({std::move(costs), std::move(why), step.plan.predictedUs(), std::nullopt, std::nullopt});
}

void warn(StepState &step, const std::string &text) {
  step.session.messages.add(Level::Warning, fmt::format("step \"{}\": {}", step.name(), text));
  step.captured.warnings.push_back(text);
}

Status keepOriginal(StepState &step) {
  const Driver &driver = *step.session.driver;
  CUgraph copy = nullptr;
  PUMPGRAPH_TRY(driver.graphClone(&copy, step.graph.handle));
  std::vector<CUgraphNode> nodes = step.captured.nodes;
  for (CUgraphNode &node : nodes)
    if (const Status found = driver.graphNodeFindInClone(&node, node, copy); !found) {
      driver.graphDestroy.raw(copy);
      return found;
    }
  step.graph.original = copy;
  step.graph.originalNodes = std::move(nodes);
  return {};
}

Status instantiate(StepState &step) {
  if (step.graph.exec)
    return {};
  PUMPGRAPH_TRY_WHILE(step.session.driver->graphInstantiate(&step.graph.exec, step.graph.handle, 0),
                      "instantiating \"{}\"", step.name());
  return {};
}

void graphIsChanging(StepState &step) {
  step.graph.hasChanged = true;
  if (step.graph.exec)
    step.session.driver->graphExecDestroy.raw(std::exchange(step.graph.exec, nullptr));
}

Status runOnce(const StepState &step, CUgraph graph, const std::string &which) {
  const Driver &driver = *step.session.driver;
  CUgraphExec exec = nullptr;
  PUMPGRAPH_TRY_WHILE(driver.graphInstantiate(&exec, graph, 0), "instantiating the {}", which);
  Status done = driver.graphLaunch(exec, step.session.device.stream);
  if (done)
    done = driver.streamSynchronize(step.session.device.stream);
  driver.graphExecDestroy.raw(exec);
  PUMPGRAPH_TRY_WHILE(done, "running the {}", which);
  return {};
}

} // namespace pumpgraph::runtime
