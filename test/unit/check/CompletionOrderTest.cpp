// SPDX-License-Identifier: Apache-2.0
#include "passes/check/CompletionOrder.h"
#include "test/unit/check/Random.h"
#include "test/unit/check/StepBuilder.h"

#include <gtest/gtest.h>

namespace pumpgraph::test {
namespace {

using check::CompletionOrder;

/// By definition: follows the edges.
bool reaches(const Description &step, NodeIndex from, NodeIndex to, CompletionOrder::Follow follow) {
  for (const Edge &edge : step.edges)
    if (edge.from == from && (edge.kind == EdgeKind::Full || follow == CompletionOrder::Follow::AnyEdge) &&
        (edge.to == to || reaches(step, edge.to, to, follow)))
      return true;
  return false;
}

TEST(CompletionOrder, isReachability) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    StepBuilder builder(1);
    builder.unordered();
    const auto count = static_cast<NodeIndex>(random.between(1, 150)); // more than two words of bits
    for (NodeIndex node = 0; node < count; ++node) {
      builder.kernel("kernel", {});
      if (node > 0 && random.chance(80))
        builder.edge(static_cast<NodeIndex>(random.below(node)), node,
                     random.chance(80) ? EdgeKind::Full : EdgeKind::Programmatic);
    }
    std::vector<Edge> &edges = builder.step().edges;
    random.shuffle(edges); // their order means nothing
    for (const auto follow : {CompletionOrder::Follow::Full, CompletionOrder::Follow::AnyEdge}) {
      const CompletionOrder order(builder.step(), follow);
      for (NodeIndex from = 0; from < count; ++from)
        for (NodeIndex to = 0; to < count; ++to)
          ASSERT_EQ(order.before(from, to), reaches(builder.step(), from, to, follow))
              << "seed " << seed << ", from " << from << " to " << to;
    }
  }
}

} // namespace
} // namespace pumpgraph::test
