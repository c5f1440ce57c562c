// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/Calibration.h"

#include "runtime/measure/KeptValues.h"
#include "runtime/measure/StepPart.h"

#include <algorithm>

namespace pumpgraph::runtime {
Calibration::~Calibration() {
  (void)returnMemory(); // after run() there is nothing left to return
}

Expected<HiddenPointers> Calibration::run() {
  const Stopwatch watch;
  PUMPGRAPH_TRY_WHILE(getMemory(), "giving every buffer memory to calibrate");
  KeptValues values(step_);
  PUMPGRAPH_TRY(values.keep());
  const Status done = runInParts();
  const Status restored = values.restore();
  PUMPGRAPH_TRY(done); // first: what fails afterwards follows from it
  PUMPGRAPH_TRY_WHILE(restored, "restoring the values after calibration");
  PUMPGRAPH_TRY(purity_.release());
  PUMPGRAPH_TRY(returnMemory());
  HiddenPointers found = scan_.take();
  found.notes.push_back(
      fmt::format("calibrated in {} runs and {:.0f} ms: {} looked at for addresses{}", runs_, watch.milliseconds(),
                  bytesText(found.scannedBytes),
                  purity_.checked() == 0 ? "" : fmt::format(", {} pure nodes run a second time", purity_.checked())));
  found.notes.insert(found.notes.end(), notes_.begin(), notes_.end());
  return found;
}

/// Copies come first: they are to be on the device.
Status Calibration::getMemory() {
  Expected<std::string> obstacle = purity_.reserve();
  if (!obstacle)
    return tl::unexpected<Error>(obstacle.error());
  Status backed = backBuffers();
  if (!backed && purity_.reservedBytes() != 0) {
    PUMPGRAPH_TRY(driver_.health());
    *obstacle = backed.error().message;
    PUMPGRAPH_TRY(purity_.release());
    backed = backBuffers();
  }
  if (backed && !obstacle->empty())
    notes_.push_back("no node that is said to be pure was run a second time to see whether it is: " + *obstacle);
  return backed;
}

/// Memory that was never written reads as zero: what another program left there must not pass for a table.
Status Calibration::backBuffers() {
  for (const std::vector<BlockId> *blocks : {&step_.captured.blocks, &step_.captured.besides})
    for (const BlockId id : *blocks) {
      Block &block = heap_.block(id);
      if (block.hasMemory())
        continue;
      backed_.push_back(id);
      PUMPGRAPH_TRY(heap_.back(block));
      PUMPGRAPH_TRY(driver_.memsetD8Async(block.address, 0, block.bytes(), session_.device.stream));
    }
  return driver_.streamSynchronize(session_.device.stream);
}

Status Calibration::returnMemory() {
  for (; !backed_.empty(); backed_.pop_back())
    PUMPGRAPH_TRY(heap_.unback(heap_.block(backed_.back())));
  return {};
}

Status Calibration::runPart(std::size_t begin, std::size_t end) {
  ++runs_;
  StepPart part(driver_, begin, end);
  PUMPGRAPH_TRY(part.make(step_.graph.handle, step_.captured.nodes));
  return part.run(session_.device.stream);
}

std::set<BlockId> Calibration::writtenBy(std::size_t node) const {
  std::set<BlockId> written;
  for (const Access &access : step_.captured.description.nodes[node].accesses)
    if (access.may & modeWrite)
      written.insert(step_.captured.blocks[access.buffer]);
  return written;
}

Status Calibration::runInParts() {
  std::set<BlockId> unseen; // written, and not looked at since
  std::size_t begin = 0;
  const std::size_t count = step_.graph.lifted.nodes.size();
  for (std::size_t node = 0; node < count; ++node) {
    const std::set<BlockId> written = writtenBy(node);
    std::vector<BlockId> overwritten;
    std::set_intersection(written.begin(), written.end(), unseen.begin(), unseen.end(),
                          std::back_inserter(overwritten));
    const bool isChecked = purity_.wants(static_cast<NodeIndex>(node));
    if ((!overwritten.empty() || isChecked) && begin != node) {
      PUMPGRAPH_TRY(runPart(begin, node));
      begin = node;
    }
    for (const BlockId block : overwritten)
      PUMPGRAPH_TRY(scan_.scanBlock(block));
    unseen.insert(written.begin(), written.end());
    if (!isChecked)
      continue;
    const Expected<bool> hasRun = purity_.check(static_cast<NodeIndex>(node));
    if (!hasRun)
      return tl::unexpected<Error>(hasRun.error());
    if (*hasRun)
      begin = node + 1;
  }
  if (begin < count)
    PUMPGRAPH_TRY(runPart(begin, count));
  for (const BlockId block : unseen)
    PUMPGRAPH_TRY(scan_.scanBlock(block));
  return {};
}

} // namespace pumpgraph::runtime
