// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/OutsideMemory.h"

#include <cstring>
#include <map>
#include <set>

namespace pumpgraph::runtime {

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

std::vector<OutsideAllocation> outsideOperands(const Driver &driver, std::span<const LiftedNode> nodes,
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
  for (const LiftedNode &node : nodes)
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

} // namespace pumpgraph::runtime
