// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/ReadDeclarations.h"

#include <algorithm>
#include <set>

namespace pumpgraph::runtime {

Status ReadDeclarations::add(const Driver &driver, CUgraph graph, const std::vector<CUdeviceptr> &pointers) {
  std::size_t count = 0;
  PUMPGRAPH_TRY_WHILE(driver.graphGetNodes(graph, nullptr, &count), "reading the graph that is being captured");
  if (count == known_.size()) // nodes only come while a stream is captured
    return {};
  std::vector<CUgraphNode> nodes(count);
  PUMPGRAPH_TRY_WHILE(driver.graphGetNodes(graph, nodes.data(), &count), "reading the graph that is being captured");
  std::vector<CUgraphNode> added;
  if (known_.size() <= nodes.size() && std::equal(known_.begin(), known_.end(), nodes.begin())) {
    added.assign(nodes.begin() + static_cast<std::ptrdiff_t>(known_.size()), nodes.end());
  } else { // the driver promises no order
    const std::set<CUgraphNode> before(known_.begin(), known_.end());
    std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(added),
                 [&](CUgraphNode node) { return !before.contains(node); });
  }
  known_ = std::move(nodes);
  if (!pointers.empty())
    for (const CUgraphNode node : added)
      reads_[node] = pointers;
  return {};
}

} // namespace pumpgraph::runtime
