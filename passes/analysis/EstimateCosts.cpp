// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/EstimateCosts.h"

#include "pumpgraph/graph/Reliance.h"

#include <cmath>
#include <unordered_map>

namespace pumpgraph {
namespace {

// 64 one-kernel nodes in a row take 102 us (docs/measurements.md).
constexpr double nodeOverheadUs = 1.6;
constexpr double usPerSecond = 1e6;

struct Traffic {
  std::uint64_t readBytes = 0;
  std::uint64_t writtenBytes = 0;
};

Traffic trafficOf(const Node &node) {
  Traffic traffic;
  for (const Access &access : node.accesses) {
    if (reliableMay(access) & modeRead)
      traffic.readBytes += access.range.size;
    if (reliableMay(access) & modeWrite)
      traffic.writtenBytes += access.range.size;
  }
  return traffic;
}

double timeUs(std::uint64_t bytes, double bytesPerSecond) {
  return static_cast<double>(bytes) / bytesPerSecond * usPerSecond;
}

/// A captured copy of which one side only is a buffer has its other side in host memory.
double copyTimeUs(const Traffic &traffic, const Machine &machine) {
  if (traffic.readBytes == 0)
    return timeUs(traffic.writtenBytes, machine.upBytesPerSecond);
  if (traffic.writtenBytes == 0)
    return timeUs(traffic.readBytes, machine.downBytesPerSecond);
  return timeUs(traffic.readBytes + traffic.writtenBytes, machine.deviceBytesPerSecond);
}

double estimateUs(const Node &node, const Machine &machine) {
  if (node.kind == NodeKind::Empty)
    return 0;
  const Traffic traffic = trafficOf(node);
  if (node.kind == NodeKind::Memcpy)
    return nodeOverheadUs + copyTimeUs(traffic, machine);
  return nodeOverheadUs + timeUs(traffic.readBytes + traffic.writtenBytes, machine.deviceBytesPerSecond);
}

} // namespace

std::size_t estimateCosts(Description &description, const Machine &machine) {
  std::size_t estimated = 0;
  for (Node &node : description.nodes) {
    if (isResidency(node.kind) || isCopy(node.kind) || !std::isnan(node.costUs))
      continue;
    node.costUs = estimateUs(node, machine);
    ++estimated;
  }
  return estimated;
}

std::size_t mergeCosts(Description &description, const Description &saved) {
  std::unordered_map<std::int32_t, const Node *> savedByPosition;
  for (const Node &node : saved.nodes)
    if (node.captured != notCaptured && !std::isnan(node.costUs))
      savedByPosition.emplace(node.captured, &node);

  std::size_t merged = 0;
  for (Node &node : description.nodes) {
    const auto found = savedByPosition.find(node.captured);
    if (found == savedByPosition.end() || found->second->name != node.name || found->second->kind != node.kind)
      continue;
    node.costUs = found->second->costUs;
    ++merged;
  }
  return merged;
}

} // namespace pumpgraph
