// SPDX-License-Identifier: Apache-2.0
#include "passes/lower/InsertAdvise.h"

#include "passes/analysis/Backend.h"
#include "pumpgraph/graph/Ranges.h"

#include <fmt/format.h>

#include <cassert>
#include <iterator>
#include <vector>

namespace pumpgraph {

namespace {

bool isAdvice(const Node &node) {
  return node.kind == NodeKind::Advise;
}

std::vector<Node> adviceFor(const Description &lowered, const AdviceOptions &options) {
  const std::vector<bool> isOnlyRead = onlyRead(lowered);
  std::vector<bool> leaves(lowered.buffers.size(), false);
  for (const Node &node : lowered.nodes)
    if (node.kind == NodeKind::Evict)
      leaves[node.buffer] = true;
  std::vector<Node> nodes;
  const auto advise = [&](BufferIndex buffer, const Range &range, Advice advice) {
    Node &node = nodes.emplace_back();
    node.kind = NodeKind::Advise;
    node.buffer = buffer;
    node.range = range;
    node.advice = advice;
    node.name = fmt::format("advise {}", lowered.buffers[buffer].name);
  };
  for (BufferIndex b = 0; b < lowered.buffers.size(); ++b) {
    const std::vector<Range> &hosted = lowered.buffers[b].hosted;
    // What is read mostly gets a copy on the device, whatever else is advised.
    std::vector<Range> moved{{0, lowered.buffers[b].size}};
    for (const Range &range : hosted)
      moved = without(moved, range);
    if (options.readMostly && leaves[b] && isOnlyRead[b])
      for (const Range &range : moved)
        for (const Advice advice : {Advice::ReadMostly, Advice::PreferHost})
          advise(b, range, advice);
    for (const Range &range : hosted) {
      if (options.preferHost)
        advise(b, range, Advice::PreferHost);
      if (options.accessedBy)
        advise(b, range, Advice::AccessedBy);
    }
  }
  return nodes;
}

} // namespace

Description insertAdvice(Description lowered, const AdviceOptions &options) {
  assert(lowered.stage == Stage::LoweredManaged && "the driver is told about managed memory alone");
  std::vector<Node> nodes = adviceFor(lowered, options);
  std::vector<NodeIndex> index(lowered.nodes.size());
  for (NodeIndex n = 0; n < index.size(); ++n) {
    index[n] = static_cast<NodeIndex>(nodes.size());
    if (!isAdvice(lowered.nodes[n]))
      nodes.push_back(std::move(lowered.nodes[n]));
  }
  lowered.nodes = std::move(nodes);
  for (Edge &edge : lowered.edges)
    edge = {index[edge.from], index[edge.to], edge.kind};
  return lowered;
}

} // namespace pumpgraph
