// SPDX-License-Identifier: Apache-2.0
#include "test/unit/plan/G10Trace.h"

#include <nlohmann/json.hpp>

#include <fstream>

namespace pumpgraph::test {

Description readG10Trace(const std::string &path, std::uint64_t pageBytes) {
  std::ifstream file(path);
  const nlohmann::json trace = nlohmann::json::parse(file);
  Description step;
  step.name = trace["name"];
  step.pageBytes = pageBytes;
  for (const nlohmann::json &tensor : trace["tensors"]) {
    Buffer buffer;
    buffer.name = tensor["name"];
    buffer.size = tensor["bytes"];
    buffer.isPrivate = true;
    buffer.liveIn = buffer.liveOut = tensor["kind"] == "persistent";
    step.buffers.push_back(buffer);
  }
  for (const nlohmann::json &kernel : trace["kernels"]) {
    Node node;
    node.name = kernel["name"];
    node.captured = static_cast<std::int32_t>(step.nodes.size());
    node.costUs = kernel["time_us"];
    const auto access = [&](BufferIndex buffer, std::uint8_t may, std::uint8_t must) {
      for (Access &present : node.accesses)
        if (present.buffer == buffer) {
          present.may |= may;
          present.must = modeNone;
          return;
        }
      node.accesses.push_back({buffer, {0, step.buffers[buffer].size}, may, must, Evidence::Declared});
    };
    for (BufferIndex buffer : kernel["reads"])
      access(buffer, modeRead, modeRead);
    for (BufferIndex buffer : kernel["writes"])
      access(buffer, modeWrite, modeWrite);
    if (!step.nodes.empty())
      step.edges.push_back(
          {static_cast<NodeIndex>(step.nodes.size() - 1), static_cast<NodeIndex>(step.nodes.size()), EdgeKind::Full});
    step.nodes.push_back(node);
  }
  return step;
}

Machine g10Machine() {
  Machine machine;
  machine.upBytesPerSecond = machine.downBytesPerSecond = 15.754e9;
  machine.bothBytesPerSecond = 31.508e9;
  return machine;
}

} // namespace pumpgraph::test
