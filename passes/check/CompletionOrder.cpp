// SPDX-License-Identifier: Apache-2.0
#include "passes/check/CompletionOrder.h"

#include <algorithm>

namespace pumpgraph::check {

CompletionOrder::CompletionOrder(const Description &description, Follow follow) {
  std::size_t words = 0;
  for (std::size_t node = 0; node < description.nodes.size(); ++node) {
    rowStart_.push_back(words);
    words += (node + 63) / 64; // a predecessor has a smaller index
  }
  bits_.resize(words);

  std::vector<Edge> edges;
  for (const Edge &edge : description.edges)
    if (edge.kind == EdgeKind::Full || follow == Follow::AnyEdge)
      edges.push_back(edge);
  // By ascending target, so that the set of every source is complete when it is joined; nearest source first, so that
  // an edge which a path implies is found to be one and costs nothing.
  std::sort(edges.begin(), edges.end(), [](const Edge &left, const Edge &right) {
    return left.to != right.to ? left.to < right.to : left.from > right.from;
  });
  for (const Edge &edge : edges)
    if (!before(edge.from, edge.to))
      join(edge.from, edge.to);
}

void CompletionOrder::join(NodeIndex from, NodeIndex to) {
  std::uint64_t *target = &bits_[rowStart_[to]];
  const std::uint64_t *source = bits_.data() + rowStart_[from];
  for (std::size_t word = 0; word < (std::size_t{from} + 63) / 64; ++word)
    target[word] |= source[word];
  target[from / 64] |= std::uint64_t{1} << (from % 64);
}

} // namespace pumpgraph::check
