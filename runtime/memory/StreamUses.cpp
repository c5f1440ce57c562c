// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/StreamUses.h"

namespace pumpgraph::runtime {

const std::set<CUstream> *StreamUses::of(CUdeviceptr allocation) const {
  const auto found = streams_.find(allocation);
  return found == streams_.end() ? nullptr : &found->second;
}

std::set<CUstream> StreamUses::streams() const {
  std::set<CUstream> all;
  for (const auto &[allocation, streams] : streams_)
    all.insert(streams.begin(), streams.end());
  return all;
}

Status StreamUses::orderBefore(const Driver &driver, CUdeviceptr allocation, CUstream stream) {
  const auto found = streams_.find(allocation);
  if (found == streams_.end())
    return {};
  const std::set<CUstream> others = std::move(found->second);
  streams_.erase(found);
  for (const CUstream other : others) {
    if (other == stream)
      continue;
    CUevent event = nullptr;
    PUMPGRAPH_TRY_WHILE(driver.eventCreate(&event, CU_EVENT_DISABLE_TIMING), "ordering a free after another stream");
    const Status recorded = driver.eventRecord(event, other);
    const Status waits = recorded ? driver.streamWaitEvent(stream, event, 0) : recorded;
    PUMPGRAPH_TRY_WHILE(driver.eventDestroy(event), "ordering a free after another stream"); // once it has happened
    PUMPGRAPH_TRY_WHILE(waits, "ordering a free after another stream");
  }
  return {};
}

} // namespace pumpgraph::runtime
