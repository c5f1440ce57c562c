// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/EstimateCosts.h"

#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>

namespace pumpgraph {
namespace {

// 64 one-kernel nodes in a row take 102 us on one H200.
constexpr double nodeOverheadUs = 1.6;
constexpr double usPerSecond = 1e6;

/// So often a step passes over the whole of a range at most, by accesses of which nobody has proved what they touch.
constexpr double mostPasses = 32;

struct Traffic {
  double readBytes = 0;
  double writtenBytes = 0;
};

/// What nodes of a step move in device memory.
class TrafficEstimate {
public:
  explicit TrafficEstimate(const Description &description) {
    for (const Node &node : description.nodes)
      for (const Access &access : node.accesses)
        if (access.evidence != Evidence::Proved)
          ++unproved_[keyOf(access)];
  }

  Traffic of(const Node &node) const {
    Traffic traffic;
    for (const Access &access : node.accesses) {
      const double bytes = bytesOf(access);
      if (reliableMay(access) & modeRead)
        traffic.readBytes += bytes;
      if (reliableMay(access) & modeWrite)
        traffic.writtenBytes += bytes;
    }
    return traffic;
  }

private:
  using Key = std::tuple<BufferIndex, std::uint64_t, std::uint64_t>;
  static Key keyOf(const Access &access) { return {access.buffer, access.range.offset, access.range.size}; }

  /// A recurrent layer's nodes each get an address in the same allocation, and work through it piece by piece.
  double bytesOf(const Access &access) const {
    const double bytes = static_cast<double>(access.range.size);
    return access.evidence == Evidence::Proved ? bytes
                                               : bytes * std::min(1.0, mostPasses / unproved_.at(keyOf(access)));
  }

  std::map<Key, std::uint32_t> unproved_; ///< how many accesses may touch all of a range, or only a part of it
};

double timeUs(double bytes, double bytesPerSecond) {
  return bytes / bytesPerSecond * usPerSecond;
}

/// A captured copy of which one side only is a buffer has its other side in host memory.
double copyTimeUs(const Traffic &traffic, const Machine &machine) {
  if (traffic.readBytes == 0)
    return timeUs(traffic.writtenBytes, machine.upBytesPerSecond);
  if (traffic.writtenBytes == 0)
    return timeUs(traffic.readBytes, machine.downBytesPerSecond);
  return timeUs(traffic.readBytes + traffic.writtenBytes, machine.deviceBytesPerSecond);
}

double estimateUs(const Node &node, const Traffic &traffic, const Machine &machine) {
  if (node.kind == NodeKind::Empty)
    return 0;
  if (node.kind == NodeKind::Memcpy)
    return nodeOverheadUs + copyTimeUs(traffic, machine);
  return nodeOverheadUs +
         std::max(timeUs(traffic.readBytes + traffic.writtenBytes, machine.deviceBytesPerSecond), node.arithmeticUs);
}

} // namespace

std::size_t estimateCosts(Description &description, const Machine &machine) {
  const TrafficEstimate traffic(description);
  std::size_t estimated = 0;
  for (Node &node : description.nodes) {
    if (isResidency(node.kind) || isCopy(node.kind) || !std::isnan(node.costUs))
      continue;
    node.costUs = estimateUs(node, traffic.of(node), machine);
    ++estimated;
  }
  return estimated;
}

/// Of accesses to the same range of the same buffer.
static void mergeSlowdowns(std::vector<Access> &accesses, const std::vector<Access> &saved) {
  for (std::size_t i = 0; i < std::min(accesses.size(), saved.size()); ++i)
    if (accesses[i].buffer == saved[i].buffer && accesses[i].range == saved[i].range)
      accesses[i].slowdown = saved[i].slowdown;
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
    mergeSlowdowns(node.accesses, found->second->accesses);
    ++merged;
  }
  return merged;
}

} // namespace pumpgraph
