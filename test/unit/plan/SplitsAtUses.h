// SPDX-License-Identifier: Apache-2.0
/// \file
/// Steps in which values continue at other addresses as often as they can.
#pragma once

#include "passes/plan/search/SplitCandidates.h"
#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <vector>

namespace pumpgraph::test {

/// A split of all of each buffer that can be split at each use but the first, unless the node overwrites it.
inline std::vector<Split> splitsAtUses(const Description &step) {
  const std::vector<bool> can = canBeSplit(step);
  std::vector<Split> splits;
  for (BufferIndex buffer = 0; buffer < step.buffers.size(); ++buffer) {
    const Range all{0, step.buffers[buffer].size};
    bool isUsed = false;
    for (NodeIndex node = 0; can[buffer] && node < step.nodes.size(); ++node) {
      const std::vector<Access> &accesses = step.nodes[node].accesses;
      const auto uses = [&](const Access &access) { return access.buffer == buffer; };
      const auto overwrites = [&](const Access &access) {
        return uses(access) && access.range == all && reliableMust(access) == modeWrite;
      };
      if (std::none_of(accesses.begin(), accesses.end(), uses))
        continue;
      if (isUsed && std::none_of(accesses.begin(), accesses.end(), overwrites))
        splits.push_back({buffer, node, {all}});
      isUsed = true;
    }
  }
  return splits;
}

} // namespace pumpgraph::test
