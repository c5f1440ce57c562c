// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/allocate/PresentBuffers.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

namespace pumpgraph {

namespace {

/// No captured node is called that: a kernel's name is a symbol.
constexpr const char *nameOfUse = "(between replays)";

} // namespace

Description withUseBetweenReplays(Description step) {
  Node use;
  use.kind = NodeKind::Kernel;
  use.name = nameOfUse;
  use.costUs = 0;
  for (BufferIndex buffer = 0; buffer < step.buffers.size(); ++buffer)
    if (step.buffers[buffer].isPresent)
      use.accesses.push_back({.buffer = buffer,
                              .range = {0, step.buffers[buffer].size},
                              .may = modeReadWrite,
                              .must = modeNone,
                              .evidence = Evidence::Declared});
  if (use.accesses.empty())
    return step;
  const auto last = static_cast<NodeIndex>(step.nodes.size());
  std::vector<bool> isFollowed(step.nodes.size(), false);
  for (const Edge &edge : step.edges)
    isFollowed[edge.from] = isFollowed[edge.from] || edge.kind == EdgeKind::Full;
  for (NodeIndex node = 0; node < last; ++node)
    if (!isFollowed[node])
      step.edges.push_back({node, last, EdgeKind::Full});
  step.nodes.push_back(std::move(use));
  return step;
}

Description withoutUseBetweenReplays(Description planned) {
  if (std::none_of(planned.buffers.begin(), planned.buffers.end(), [](const Buffer &one) { return one.isPresent; }))
    return planned;
  const auto isUse = [](const Node &node) { return node.kind == NodeKind::Kernel && node.name == nameOfUse; };
  const auto last = std::find_if(planned.nodes.rbegin(), planned.nodes.rend(), isUse);
  assert(last != planned.nodes.rend() && "where something is present the planner was given its use");
  const auto found = std::prev(last.base());
  const auto use = static_cast<NodeIndex>(found - planned.nodes.begin());
  std::vector<NodeIndex> before, after;
  std::set<std::pair<NodeIndex, NodeIndex>> kept;
  std::vector<Edge> edges;
  const auto place = [use](NodeIndex node) { return node > use ? node - 1 : node; };
  for (const Edge &edge : planned.edges) {
    if (edge.to == use)
      before.push_back(edge.from);
    else if (edge.from == use)
      after.push_back(edge.to);
    else if (kept.emplace(edge.from, edge.to).second)
      edges.push_back({place(edge.from), place(edge.to), edge.kind});
  }
  for (const NodeIndex from : before)
    for (const NodeIndex to : after)
      if (kept.emplace(from, to).second)
        edges.push_back({place(from), place(to), EdgeKind::Full});
  planned.edges = std::move(edges);
  planned.nodes.erase(found);
  return planned;
}

} // namespace pumpgraph
