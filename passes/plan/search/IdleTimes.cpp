// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/IdleTimes.h"

#include "pumpgraph/graph/Reliance.h"

#include <algorithm>

namespace pumpgraph {

namespace {

/// The nodes that touch each buffer, ascending.
std::vector<std::vector<NodeIndex>> usersOf(const Description &step) {
  std::vector<std::vector<NodeIndex>> users(step.buffers.size());
  for (NodeIndex node = 0; node < step.nodes.size(); ++node)
    for (const Access &access : step.nodes[node].accesses)
      if (std::vector<NodeIndex> &list = users[access.buffer]; list.empty() || list.back() != node)
        list.push_back(node);
  return users;
}

/// Whether the node's accesses overwrite all of the buffer: then no value goes on.
bool overwrites(const Description &step, NodeIndex node, BufferIndex buffer) {
  const std::vector<Access> &accesses = step.nodes[node].accesses;
  return std::any_of(accesses.begin(), accesses.end(), [&](const Access &access) {
    return access.buffer == buffer && reliableMust(access) == modeWrite && access.range.offset == 0 &&
           access.range.size == step.buffers[buffer].size;
  });
}

} // namespace

std::vector<bool> canBeSplit(const Description &step) {
  std::vector<bool> can;
  for (const Buffer &buffer : step.buffers) {
    can.push_back(buffer.isPrivate && buffer.isRenamable && !buffer.liveIn && !buffer.liveOut &&
                  buffer.hosted.empty() && buffer.frames.empty() && buffer.continues == noBuffer);
    if (buffer.continues != noBuffer)
      can[buffer.continues] = false;
  }
  return can;
}

std::vector<Split> idleTimes(const Description &step, const Timeline &timeline, double leastShare) {
  const InMemoryTimes &times = timeline.times();
  const std::vector<std::vector<NodeIndex>> users = usersOf(step);
  const std::vector<bool> can = canBeSplit(step);
  std::vector<Split> result;
  for (BufferIndex buffer = 0; buffer < step.buffers.size(); ++buffer) {
    if (!can[buffer])
      continue;
    const std::vector<NodeIndex> &nodes = users[buffer];
    double lastUs = 0;
    for (std::size_t next = 1; next < nodes.size(); ++next) {
      lastUs = std::max(lastUs, times.endUs[nodes[next - 1]]);
      const double share = (times.startUs[nodes[next]] - lastUs) / std::max(times.totalUs, 1e-9);
      if (share >= leastShare && !overwrites(step, nodes[next], buffer))
        result.push_back({buffer, nodes[next], {{0, step.buffers[buffer].size}}});
    }
  }
  return result;
}

} // namespace pumpgraph
