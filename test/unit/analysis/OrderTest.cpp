// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Order.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <random>

namespace pumpgraph {
namespace {

NodeIndex append(Order &order, std::vector<NodeIndex> predecessors) {
  return order.append(predecessors);
}

TEST(Order, PathsOrderAndNothingElseDoes) {
  Order order;
  const NodeIndex fork = append(order, {});
  const NodeIndex left = append(order, {fork});
  const NodeIndex right = append(order, {fork});
  const NodeIndex join = append(order, {left, right});
  EXPECT_TRUE(order.completesBefore(fork, join));
  EXPECT_TRUE(order.completesBefore(left, join));
  EXPECT_TRUE(order.completesBefore(right, join));
  EXPECT_FALSE(order.completesBefore(left, right));
  EXPECT_FALSE(order.completesBefore(right, left));
  EXPECT_FALSE(order.completesBefore(join, fork));
  EXPECT_FALSE(order.completesBefore(fork, fork));
}

TEST(Order, ProgrammaticEdgesDoNotOrder) {
  Description step;
  step.nodes.resize(3);
  step.edges = {{0, 1, EdgeKind::Programmatic}, {1, 2, EdgeKind::Full}};
  const Order order(step);
  EXPECT_FALSE(order.completesBefore(0, 1));
  EXPECT_FALSE(order.completesBefore(0, 2));
  EXPECT_TRUE(order.completesBefore(1, 2));
}

TEST(Order, TwoStreamsThatWaitForOneAnotherAreTwoChains) {
  Description step;
  step.nodes.resize(100);
  for (NodeIndex n = 2; n < 100; ++n) {
    step.edges.push_back({n - 2, n, EdgeKind::Full});
    if (n % 10 == 0)
      step.edges.push_back({n - 1, n, EdgeKind::Full});
  }
  EXPECT_EQ(Order(step).chainCount(), 2u);
}

/// Reachability by a walk, to compare with.
class Walk {
public:
  void append(const std::vector<NodeIndex> &predecessors) {
    std::vector<bool> before(before_.size(), false);
    for (NodeIndex p : predecessors) {
      before[p] = true;
      for (std::size_t n = 0; n < before_[p].size(); ++n)
        before[n] = before[n] || before_[p][n];
    }
    before_.push_back(std::move(before));
  }
  bool completesBefore(NodeIndex a, NodeIndex b) const { return a < before_[b].size() && before_[b][a]; }

private:
  std::vector<std::vector<bool>> before_;
};

TEST(Order, AgreesWithAWalkOnRandomGraphs) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const unsigned edgesANode = seed % 4;
    Order order;
    Walk walk;
    for (NodeIndex n = 0; n < 60; ++n) {
      std::vector<NodeIndex> predecessors;
      for (unsigned e = 0; n > 0 && e < edgesANode; ++e)
        predecessors.push_back(n - 1 - static_cast<NodeIndex>(random() % std::min<NodeIndex>(n, 8)));
      order.append(predecessors, {}, static_cast<std::uint8_t>(seed % 3 == 0 ? n % 3 : 0));
      walk.append(predecessors);
    }
    for (NodeIndex a = 0; a < 60; ++a)
      for (NodeIndex b = 0; b < 60; ++b)
        ASSERT_EQ(order.completesBefore(a, b), walk.completesBefore(a, b)) << "seed " << seed << ": " << a << ", " << b;
  }
}

TEST(Order, ANodeOfAnotherLaneLeavesAChainWhole) {
  Order order;
  const NodeIndex first = order.append({});
  order.append(std::vector<NodeIndex>{first}, {}, 1); // comes first, but does not go on with the chain
  order.append(std::vector<NodeIndex>{first});
  EXPECT_EQ(order.chainCount(), 2u);
}

TEST(Order, TransfersBesideAChainNeedAChainADirection) {
  constexpr NodeIndex rounds = 1000;
  Order order;
  std::vector<NodeIndex> kernels, downs, ups;
  for (NodeIndex i = 0; i < rounds; ++i) {
    const auto lastOf = [](const std::vector<NodeIndex> &nodes, std::size_t back) {
      return nodes.size() < back ? std::vector<NodeIndex>() : std::vector<NodeIndex>{nodes[nodes.size() - back]};
    };
    const auto follow = [&](std::vector<NodeIndex> before, const std::vector<NodeIndex> &also, std::uint8_t lane) {
      before.insert(before.end(), also.begin(), also.end());
      return order.append(before, {}, lane);
    };
    kernels.push_back(follow(lastOf(kernels, 1), lastOf(ups, 2), 0));
    downs.push_back(follow(lastOf(downs, 1), lastOf(kernels, 1), 2));
    ups.push_back(follow(lastOf(ups, 1), lastOf(downs, 1), 1));
  }
  EXPECT_EQ(order.chainCount(), 3u);
  EXPECT_TRUE(order.completesBefore(downs[5], kernels[8]));
  EXPECT_FALSE(order.completesBefore(downs[8], kernels[8]));
}

TEST(Order, IsNearLinearForChainLikeGraphs) {
  constexpr NodeIndex count = 50'000;
  const auto begin = std::chrono::steady_clock::now();
  Order order;
  std::vector<NodeIndex> predecessors;
  for (NodeIndex n = 0; n < count; ++n) {
    predecessors.clear();
    for (NodeIndex back : {4u, 7u}) // four streams, joined again and again
      if (n >= back && (back == 4 || n % 16 == 0))
        predecessors.push_back(n - back);
    order.append(predecessors);
  }
  std::size_t ordered = 0;
  for (NodeIndex n = 0; n + 100 < count; ++n)
    ordered += order.completesBefore(n, n + 100);
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
  std::printf("%u nodes, %zu chains: built and asked in %.1f ms\n", count, order.chainCount(), ms.count());
  EXPECT_GT(ordered, count / 4);
  EXPECT_LE(order.chainCount(), 8u);
}

} // namespace
} // namespace pumpgraph
