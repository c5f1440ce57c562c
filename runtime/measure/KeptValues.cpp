// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/KeptValues.h"

#include "runtime/capture/OutsideMemory.h"
#include "runtime/state/Values.h"

#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

namespace pumpgraph::runtime {
std::string KeptValues::lastingEffect(const StepState &step) {
  for (const LiftedNode &node : step.graph.lifted.nodes) {
    if (node.callsHost)
      return "it calls a host function";
    if (node.kind == NodeKind::SemaphoreSignal || node.kind == NodeKind::SemaphoreWait ||
        node.kind == NodeKind::BatchMemOp || node.kind == NodeKind::Opaque)
      return node.refusal;
    for (const OutsideSpan &span : node.outside)
      if (span.address == 0)
        return "it writes an array";
  }
  const SessionState &session = step.session;
  for (const OutsideAllocation &allocation :
       outsideOperands(*session.driver, step.graph.lifted.nodes, *session.memory.addresses))
    if (allocation.isOnHost)
      return fmt::format("a kernel may write host memory at {:#x}", allocation.address);
  return "";
}

std::vector<KeptValues::Region> KeptValues::findRegions() const {
  std::vector<Region> regions;
  const auto add = [&](CUdeviceptr address, std::size_t bytes, bool isOnHost) {
    regions.push_back({address, isOnHost, std::vector<char>(bytes)});
  };
  for (const BlockId id : step_.captured.besides) // nodes may reach these by addresses in memory
    if (const Block &block = session_.memory.heap->block(id); block.hasMemory())
      add(block.address, block.bytes(), false);
  for (const LiftedNode &node : step_.graph.lifted.nodes)
    for (const OutsideSpan &span : node.outside) {
      const std::optional<OutsideAllocation> allocation = allocationAt(driver_, span.address);
      add(span.address, span.bytes, !allocation || allocation->isOnHost);
    }
  for (const OutsideAllocation &allocation :
       outsideOperands(driver_, step_.graph.lifted.nodes, *session_.memory.addresses))
    add(allocation.address, allocation.bytes, allocation.isOnHost);
  return regions;
}

Status KeptValues::keep(std::uint64_t copies) {
  const std::string &name = step_.name();
  if (const std::string effect = lastingEffect(step_); !effect.empty())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be run but by the program, because {}", name, effect);
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device before values are kept");
  const std::vector<Buffer> &buffers = step_.captured.description.buffers;
  std::uint64_t bytes = 0;
  for (const Buffer &buffer : buffers)
    bytes += buffer.liveIn || buffer.liveOut ? buffer.size : 0;
  regions_ = findRegions();
  for (const Region &region : regions_)
    bytes += region.value.size();
  if (copies * bytes > availableHostBytes())
    return fail(PUMPGRAPH_OUT_OF_HOST_MEMORY, "{} of {} have to be kept to run \"{}\"; the system has {} left",
                copies == 1 ? "a copy" : fmt::format("{} copies", copies), bytesText(bytes), name,
                bytesText(availableHostBytes()));
  isWritten_.assign(buffers.size(), !step_.captured.refusals.empty()); // a node that hides what it writes
  for (const Node &node : step_.captured.description.nodes)
    for (const Access &access : node.accesses)
      if ((reliableMay(access) & modeWrite) != 0)
        isWritten_[access.buffer] = true;
  buffers_.resize(buffers.size());
  for (BufferIndex buffer = 0; buffer < buffers.size(); ++buffer) {
    if (!buffers[buffer].liveIn && !buffers[buffer].liveOut)
      continue;
    buffers_[buffer].resize(buffers[buffer].size);
    PUMPGRAPH_TRY(readValue(step_, buffer, buffers_[buffer].data()));
  }
  for (Region &region : regions_)
    if (region.isOnHost)
      std::memcpy(region.value.data(), reinterpret_cast<const void *>(region.address), region.value.size());
    else
      PUMPGRAPH_TRY_WHILE(
          driver_.memcpyDtoHAsync(region.value.data(), region.address, region.value.size(), session_.device.stream),
          "reading {} at {:#x}", bytesText(region.value.size()), region.address);
  PUMPGRAPH_TRY_WHILE(driver_.streamSynchronize(session_.device.stream), "reading memory that the step may reach");
  return {};
}

Status KeptValues::write(Which which) {
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device before values are put back");
  Status all; // what can be put back is
  for (BufferIndex buffer = 0; buffer < buffers_.size(); ++buffer)
    if (!buffers_[buffer].empty() && (which == Which::All || isWritten_[buffer]))
      keepFirst(all, writeValue(step_, buffer, buffers_[buffer].data()));
  for (const Region &region : regions_)
    if (region.isOnHost)
      std::memcpy(reinterpret_cast<void *>(region.address), region.value.data(), region.value.size());
    else
      keepFirst(all, driver_.memcpyHtoDAsync(region.address, region.value.data(), region.value.size(),
                                             session_.device.stream));
  keepFirst(all, driver_.streamSynchronize(session_.device.stream));
  return all;
}

} // namespace pumpgraph::runtime
