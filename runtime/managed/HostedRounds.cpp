// SPDX-License-Identifier: Apache-2.0
#include "runtime/managed/HostedRounds.h"

#include <algorithm>
#include <utility>

namespace pumpgraph::runtime {

std::vector<std::uint8_t> hostedRounds(const Description &step, const std::vector<bool> &candidates,
                                       std::uint8_t most) {
  std::vector<std::vector<std::pair<NodeIndex, std::uint64_t>>> uses(step.buffers.size()); // nodes, and bytes of each
  std::vector<BufferIndex> byFirstUse;
  for (NodeIndex node = 0; node < step.nodes.size(); ++node)
    for (const Access &access : step.nodes[node].accesses) {
      if (!candidates[access.buffer])
        continue;
      if (uses[access.buffer].empty())
        byFirstUse.push_back(access.buffer);
      uses[access.buffer].emplace_back(node, access.range.size);
    }
  std::vector<std::vector<std::uint64_t>> bytes(step.nodes.size(), std::vector<std::uint64_t>(most, 0)); // by round
  std::vector<std::uint8_t> rounds(step.buffers.size(), 0);
  for (const BufferIndex buffer : byFirstUse) {
    // Bytes that could not be told apart; and where that is the same, of all that nodes have of the round.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> together(most);
    for (const auto &[node, size] : uses[buffer])
      for (std::uint8_t round = 0; round < most; ++round) {
        together[round].first += std::min(size, bytes[node][round]);
        together[round].second += bytes[node][round];
      }
    const auto best = std::min_element(together.begin(), together.end()) - together.begin();
    rounds[buffer] = static_cast<std::uint8_t>(best);
    for (const auto &[node, size] : uses[buffer])
      bytes[node][static_cast<std::size_t>(best)] += size;
  }
  return rounds;
}

} // namespace pumpgraph::runtime
