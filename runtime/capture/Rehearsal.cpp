// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/Rehearsal.h"

namespace pumpgraph::runtime {

CaptureOrder::CaptureOrder(const Heap &heap) {
  std::uint32_t position = 0;
  for (const Hit &allocation : heap.captured())
    position_.emplace(std::pair{allocation.block, allocation.member}, position++);
}

std::optional<std::uint32_t> CaptureOrder::of(const Hit &hit) const {
  const auto found = position_.find({hit.block, hit.member});
  if (found == position_.end())
    return std::nullopt;
  return found->second;
}

Rehearsal::Rehearsal(const LiftedGraph &graph, const Heap &heap) : allocations_(heap.captured().size()) {
  for (const LiftedNode &lifted : graph.nodes) {
    Node &node = nodes_.emplace_back(Node{lifted.kind, lifted.name, {}});
    for (const PointerWord &word : lifted.words)
      node.words.emplace(Place{word.inner, word.parameter, word.offset}, word.value);
  }
}

bool Rehearsal::matches(const LiftedGraph &graph, const Heap &heap) const {
  if (heap.captured().size() != allocations_ || graph.nodes.size() != nodes_.size())
    return false;
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (graph.nodes[i].kind != nodes_[i].kind || graph.nodes[i].name != nodes_[i].name)
      return false;
  return true;
}

bool Rehearsal::refutes(std::size_t node, const PointerWord &word, std::optional<std::uint32_t> position) const {
  if (!position) // an allocation that has not moved says nothing about words that have not
    return false;
  const auto found = nodes_[node].words.find(Place{word.inner, word.parameter, word.offset});
  // An address of nothing at all in the first capture is no address either.
  return found == nodes_[node].words.end() || found->second == word.value;
}

} // namespace pumpgraph::runtime
