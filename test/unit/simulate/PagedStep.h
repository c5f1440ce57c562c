// SPDX-License-Identifier: Apache-2.0
/// \file
/// Captured steps for the simulator, in blocks of 2 MiB, and a memory whose costs are round numbers.
#pragma once

#include "passes/simulate/Simulate.h"
#include "test/unit/analysis/SmallStep.h"

#include <string>
#include <utility>
#include <vector>

namespace pumpgraph::test {

/// One block takes 1 us to fetch, 2 to write back, 0.5 to populate; a batch costs 10 us, a block in it 3, a prefetch
/// call 5. Nothing hides behind compute. One replay, every buffer at its own address.
inline UnifiedMemory roundMemory() {
  constexpr double blockPerUs = static_cast<double>(blockBytes) * 1e6;
  UnifiedMemory memory;
  memory.upBytesPerSecond = blockPerUs;
  memory.downBytesPerSecond = blockPerUs / 2;
  memory.populateBytesPerSecond = blockPerUs * 2;
  memory.batchUs = 10;
  memory.blockUs = 3;
  memory.prefetchCallUs = 5;
  memory.computesWhileFaulting = false;
  memory.addresses = Addresses::Own;
  memory.replays = 1;
  return memory;
}

/// Kernels one after the other.
class PagedStep {
public:
  /// A value that the step begins with, in host memory.
  BufferIndex live(const std::string &name, std::uint64_t blocks) { return add(name, blocks * blockBytes, true, true); }
  /// A value of the step's own.
  BufferIndex local(const std::string &name, std::uint64_t blocks) {
    return add(name, blocks * blockBytes, true, false);
  }
  BufferIndex exclusive(const std::string &name, std::uint64_t blocks) {
    return add(name, blocks * blockBytes, false, true);
  }

  Access read(BufferIndex b) const { return {b, {0, step.buffers[b].size}, modeRead, modeRead}; }
  Access write(BufferIndex b) const { return {b, {0, step.buffers[b].size}, modeWrite, modeWrite}; }
  Access readPart(BufferIndex b, std::uint64_t offset, std::uint64_t size) const {
    return {b, {offset, size}, modeRead, modeRead};
  }

  NodeIndex kernel(double costUs, std::vector<Access> accesses) {
    const auto node = static_cast<NodeIndex>(step.nodes.size());
    if (node > 0)
      step.edges.push_back({node - 1, node, EdgeKind::Full});
    step.nodes.emplace_back();
    step.nodes.back().name = "kernel";
    step.nodes.back().captured = static_cast<std::int32_t>(node);
    step.nodes.back().costUs = costUs;
    step.nodes.back().accesses = std::move(accesses);
    return node;
  }

  Description step;

private:
  BufferIndex add(const std::string &name, std::uint64_t bytes, bool isPrivate, bool isLive) {
    return addBuffer(step, name, bytes, isPrivate, isLive);
  }
};

inline Simulation simulateBlocks(const Description &step, std::uint64_t budgetBlocks, const UnifiedMemory &memory,
                                 PagingPolicy policy = PagingPolicy::DemandPaging) {
  return *simulate(step, {budgetBlocks * blockBytes, policy, memory});
}

} // namespace pumpgraph::test
