// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/KeptValues.h"

#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

namespace pumpgraph::runtime {
namespace {

/// The allocation that an address belongs to, by what the driver knows of it.
struct OutsideAllocation {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  bool isOnHost = false;
};

std::optional<OutsideAllocation> allocationAt(const Driver &driver, CUdeviceptr address) {
  OutsideAllocation found;
  unsigned int type = 0;
  if (driver.pointerGetAttribute.raw(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS ||
      driver.pointerGetAttribute.raw(&found.address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) != CUDA_SUCCESS ||
      driver.pointerGetAttribute.raw(&found.bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) != CUDA_SUCCESS)
    return std::nullopt;
  found.isOnHost = type == CU_MEMORYTYPE_HOST;
  return found;
}

/// The allocations outside `addresses` that words among the parameters of a step's kernels lead into. A number that
/// looks like such an address is taken for one. Of host memory only where the word is a whole parameter: what a struct
/// has between its members may be anything, and programs have much pinned memory.
std::vector<OutsideAllocation> outsideOperands(const Driver &driver, const LiftedGraph &graph,
                                               const AddressSpace &addresses) {
  constexpr std::uint64_t lowest = std::uint64_t{1} << 16, highest = std::uint64_t{1} << 57;
  std::map<CUdeviceptr, OutsideAllocation> found; // by where they end
  std::set<CUdeviceptr> others;
  const auto look = [&](CUdeviceptr word, bool isWhole) {
    if (word < lowest || word >= highest || addresses.contains(word) || others.contains(word))
      return;
    if (const auto known = found.upper_bound(word); known != found.end() && known->second.address <= word)
      return;
    if (const std::optional<OutsideAllocation> allocation = allocationAt(driver, word);
        allocation && (isWhole || !allocation->isOnHost))
      found.emplace(allocation->address + allocation->bytes, *allocation);
    else if (!allocation)
      others.insert(word);
  };
  for (const LiftedNode &node : graph.nodes)
    for (const KernelLaunch &launch : node.launches)
      for (std::size_t index = 0; index < launch.ends.size(); ++index) {
        const std::span<const char> bytes = launch.parameter(index);
        for (std::size_t offset = 0; offset + sizeof(CUdeviceptr) <= bytes.size(); offset += 4) {
          CUdeviceptr word = 0;
          std::memcpy(&word, bytes.data() + offset, sizeof word);
          look(word, bytes.size() == sizeof word);
        }
      }
  std::vector<OutsideAllocation> all;
  for (const auto &[end, allocation] : found)
    all.push_back(allocation);
  return all;
}

} // namespace

std::string KeptValues::lastingEffect(const Step &step) {
  for (const LiftedNode &node : step.lifted_.nodes) {
    if (node.callsHost)
      return "it calls a host function";
    if (node.kind == NodeKind::SemaphoreSignal || node.kind == NodeKind::SemaphoreWait ||
        node.kind == NodeKind::BatchMemOp || node.kind == NodeKind::Opaque)
      return node.refusal;
    for (const OutsideSpan &span : node.outside)
      if (span.address == 0)
        return "it writes an array";
  }
  const Session &session = step.session_;
  for (const OutsideAllocation &allocation : outsideOperands(*session.driver_, step.lifted_, *session.addresses_))
    if (allocation.isOnHost)
      return fmt::format("a kernel may write host memory at {:#x}", allocation.address);
  return "";
}

std::vector<KeptValues::Region> KeptValues::findRegions() const {
  std::vector<Region> regions;
  const auto add = [&](CUdeviceptr address, std::size_t bytes, bool isOnHost) {
    regions.push_back({address, isOnHost, std::vector<char>(bytes)});
  };
  for (const BlockId id : step_.captured_.besides) // nodes may reach these by addresses in memory
    if (const Block &block = session_.heap_->block(id); block.hasMemory())
      add(block.address, block.bytes(), false);
  for (const LiftedNode &node : step_.lifted_.nodes)
    for (const OutsideSpan &span : node.outside) {
      const std::optional<OutsideAllocation> allocation = allocationAt(driver_, span.address);
      add(span.address, span.bytes, !allocation || allocation->isOnHost);
    }
  for (const OutsideAllocation &allocation : outsideOperands(driver_, step_.lifted_, *session_.addresses_))
    add(allocation.address, allocation.bytes, allocation.isOnHost);
  return regions;
}

Status KeptValues::keep(std::uint64_t copies) {
  const std::string &name = step_.captured_.description.name;
  if (const std::string effect = lastingEffect(step_); !effect.empty())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be run but by the program, because {}", name, effect);
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device before values are kept");
  const std::vector<Buffer> &buffers = step_.captured_.description.buffers;
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
  isWritten_.assign(buffers.size(), !step_.captured_.refusals.empty()); // a node that hides what it writes
  for (const Node &node : step_.captured_.description.nodes)
    for (const Access &access : node.accesses)
      if ((reliableMay(access) & modeWrite) != 0)
        isWritten_[access.buffer] = true;
  buffers_.resize(buffers.size());
  for (BufferIndex buffer = 0; buffer < buffers.size(); ++buffer) {
    if (!buffers[buffer].liveIn && !buffers[buffer].liveOut)
      continue;
    buffers_[buffer].resize(buffers[buffer].size);
    PUMPGRAPH_TRY(step_.readValue(buffer, buffers_[buffer].data()));
  }
  for (Region &region : regions_)
    if (region.isOnHost)
      std::memcpy(region.value.data(), reinterpret_cast<const void *>(region.address), region.value.size());
    else
      PUMPGRAPH_TRY_WHILE(
          driver_.memcpyDtoHAsync(region.value.data(), region.address, region.value.size(), session_.stream_),
          "reading {} at {:#x}", bytesText(region.value.size()), region.address);
  PUMPGRAPH_TRY_WHILE(driver_.streamSynchronize(session_.stream_), "reading memory that the step may reach");
  return {};
}

Status KeptValues::write(Which which) {
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device before values are put back");
  Status all; // what can be put back is
  for (BufferIndex buffer = 0; buffer < buffers_.size(); ++buffer)
    if (!buffers_[buffer].empty() && (which == Which::All || isWritten_[buffer]))
      keepFirst(all, step_.writeValue(buffer, buffers_[buffer].data()));
  for (const Region &region : regions_)
    if (region.isOnHost)
      std::memcpy(reinterpret_cast<void *>(region.address), region.value.data(), region.value.size());
    else
      keepFirst(all,
                driver_.memcpyHtoDAsync(region.address, region.value.data(), region.value.size(), session_.stream_));
  keepFirst(all, driver_.streamSynchronize(session_.stream_));
  return all;
}

} // namespace pumpgraph::runtime
