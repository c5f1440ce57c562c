// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/FewNodes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

namespace pumpgraph {

std::optional<FewNodes> findFewNodes(const Description &captured) {
  std::vector<double> timesUs;
  for (const Node &node : captured.nodes)
    if (!isAdded(node.kind) && !std::isnan(node.costUs))
      timesUs.push_back(node.costUs);
  std::sort(timesUs.begin(), timesUs.end(), std::greater());
  const double totalUs = std::accumulate(timesUs.begin(), timesUs.end(), 0.0);
  const auto most = static_cast<std::uint64_t>(mostNodesThatAreFew * static_cast<double>(timesUs.size()));
  if (timesUs.size() < leastMeasuredNodes || totalUs <= 0)
    return std::nullopt;
  double us = 0;
  for (std::uint64_t nodes = 1; nodes <= most; ++nodes) {
    us += timesUs[nodes - 1];
    if (us >= leastShareOfFew * totalUs)
      return FewNodes{nodes, timesUs.size(), us / totalUs};
  }
  return std::nullopt;
}

} // namespace pumpgraph
