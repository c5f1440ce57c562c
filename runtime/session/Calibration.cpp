// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/Calibration.h"

#include "runtime/session/Measuring.h"

#include <algorithm>

namespace pumpgraph::runtime {
namespace {

/// Kinds that a replay can do without.
bool isSwitchable(NodeKind kind) {
  return kind == NodeKind::Kernel || kind == NodeKind::Memcpy || kind == NodeKind::Memset;
}
/// Kinds of which it does not matter how often they run.
bool isIdle(NodeKind kind) {
  return kind == NodeKind::Empty || kind == NodeKind::EventRecord || kind == NodeKind::EventWait;
}

} // namespace

Calibration::~Calibration() {
  if (exec_)
    driver_.graphExecDestroy.raw(exec_);
  if (copy_)
    driver_.graphDestroy.raw(copy_);
  (void)returnMemory(); // after run() there is nothing left to return
}

Expected<HiddenPointers> Calibration::run() {
  const Stopwatch watch;
  PUMPGRAPH_TRY_WHILE(backBuffers(), "giving every buffer memory to calibrate");
  Measuring values(step_);
  PUMPGRAPH_TRY(values.keepValues());
  const Status done = runStep();
  PUMPGRAPH_TRY_WHILE(values.restoreValues(), "restoring the values after calibration");
  PUMPGRAPH_TRY(done);
  PUMPGRAPH_TRY(returnMemory());
  HiddenPointers found = scan_.take();
  found.notes.push_back(fmt::format("calibrated in {} runs and {:.0f} ms: {} looked at for addresses", runs_,
                                    watch.milliseconds(), bytesText(found.scannedBytes)));
  return found;
}

/// Memory that was never written reads as zero: what another program left there must not pass for a table.
Status Calibration::backBuffers() {
  for (const std::vector<BlockId> *blocks : {&step_.captured_.blocks, &step_.captured_.besides})
    for (const BlockId id : *blocks) {
      Block &block = heap_.block(id);
      if (block.hasMemory())
        continue;
      backed_.push_back({id, block.backing});
      PUMPGRAPH_TRY(heap_.back(block));
      PUMPGRAPH_TRY(driver_.memsetD8Async(block.address, 0, block.bytes(), session_.stream_));
    }
  return driver_.streamSynchronize(session_.stream_);
}

Status Calibration::returnMemory() {
  for (; !backed_.empty(); backed_.pop_back()) {
    Block &block = heap_.block(backed_.back().block);
    PUMPGRAPH_TRY(heap_.unback(block));
    if (backed_.back().before == Backing::StandIn)
      PUMPGRAPH_TRY(heap_.standIn(block));
  }
  return {};
}

Status Calibration::runStep() {
  PUMPGRAPH_TRY(instantiate());
  if (const LiftedNode *fixed = firstFixedNode())
    return runInOne(*fixed);
  const Expected<std::vector<CUgraphNode>> nodes = switchableNodes();
  if (!nodes)
    return tl::unexpected<Error>(nodes.error());
  return runInParts(*nodes);
}

/// Of a copy in which every edge waits for completion: a node that is left out has nothing to trigger a dependent
/// launch with.
Status Calibration::instantiate() {
  PUMPGRAPH_TRY_WHILE(driver_.graphClone(&copy_, step_.graph_), "copying the graph to calibrate");
  GraphEditor editor(driver_, copy_, session_.context_);
  for (const LiftedEdge &edge : step_.lifted_.edges) {
    if (edge.kind != EdgeKind::Programmatic)
      continue;
    CUgraphNode from = nullptr, to = nullptr;
    PUMPGRAPH_TRY(driver_.graphNodeFindInClone(&from, step_.lifted_.nodes[edge.from].handle, copy_));
    PUMPGRAPH_TRY(driver_.graphNodeFindInClone(&to, step_.lifted_.nodes[edge.to].handle, copy_));
    PUMPGRAPH_TRY(editor.demote(from, to, edge.data));
  }
  editor.commit();
  PUMPGRAPH_TRY_WHILE(driver_.graphInstantiate(&exec_, copy_, 0), "instantiating the step to calibrate");
  return {};
}

const LiftedNode *Calibration::firstFixedNode() const {
  for (const LiftedNode &node : step_.lifted_.nodes)
    if (!isSwitchable(node.kind) && !isIdle(node.kind))
      return &node;
  return nullptr;
}

Expected<std::vector<CUgraphNode>> Calibration::switchableNodes() const {
  std::vector<CUgraphNode> nodes;
  for (const LiftedNode &node : step_.lifted_.nodes) {
    CUgraphNode copy = nullptr;
    if (isSwitchable(node.kind))
      PUMPGRAPH_TRY(driver_.graphNodeFindInClone(&copy, node.handle, copy_));
    nodes.push_back(copy);
  }
  return nodes;
}

Status Calibration::launchAndWait() {
  ++runs_;
  PUMPGRAPH_TRY_WHILE(driver_.graphLaunch(exec_, session_.stream_), "running the step to calibrate");
  PUMPGRAPH_TRY_WHILE(driver_.streamSynchronize(session_.stream_), "running the step to calibrate");
  return {};
}

/// All at once: what is overwritten later in the step is not seen.
Status Calibration::runInOne(const LiftedNode &fixed) {
  PUMPGRAPH_TRY(launchAndWait());
  std::set<BlockId> written;
  for (std::size_t node = 0; node < step_.lifted_.nodes.size(); ++node)
    written.merge(writtenBy(node));
  for (const BlockId block : written)
    PUMPGRAPH_TRY(scan_.scanBlock(block));
  step_.captured_.notes.push_back(fmt::format("node \"{}\" cannot be left out of a run, so the step was not stopped on "
                                              "its way: calibration saw only what its buffers hold at its end",
                                              fixed.name));
  return {};
}

std::set<BlockId> Calibration::writtenBy(std::size_t node) const {
  std::set<BlockId> written;
  for (const Access &access : step_.captured_.description.nodes[node].accesses)
    if (access.may & modeWrite)
      written.insert(step_.captured_.blocks[access.buffer]);
  return written;
}

Status Calibration::runInParts(const std::vector<CUgraphNode> &nodes) {
  const auto enable = [&](std::size_t begin, std::size_t end, bool enabled) -> Status {
    for (std::size_t node = begin; node < end; ++node)
      if (nodes[node])
        PUMPGRAPH_TRY_WHILE(driver_.graphNodeSetEnabled(exec_, nodes[node], enabled ? 1 : 0),
                            "switching node {} \"{}\" {}", node, step_.lifted_.nodes[node].name,
                            enabled ? "on" : "off");
    return {};
  };
  PUMPGRAPH_TRY(enable(0, nodes.size(), false));
  std::set<BlockId> unseen; // written, and not looked at since
  std::size_t begin = 0;
  const auto runUpTo = [&](std::size_t end) -> Status {
    PUMPGRAPH_TRY(enable(begin, end, true));
    PUMPGRAPH_TRY(launchAndWait());
    PUMPGRAPH_TRY(enable(begin, end, false));
    begin = end;
    return {};
  };
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const std::set<BlockId> written = writtenBy(node);
    std::vector<BlockId> overwritten;
    std::set_intersection(written.begin(), written.end(), unseen.begin(), unseen.end(),
                          std::back_inserter(overwritten));
    if (!overwritten.empty() && begin != node)
      PUMPGRAPH_TRY(runUpTo(node));
    for (const BlockId block : overwritten)
      PUMPGRAPH_TRY(scan_.scanBlock(block));
    unseen.insert(written.begin(), written.end());
  }
  PUMPGRAPH_TRY(runUpTo(nodes.size()));
  for (const BlockId block : unseen)
    PUMPGRAPH_TRY(scan_.scanBlock(block));
  return {};
}

} // namespace pumpgraph::runtime
