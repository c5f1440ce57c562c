// SPDX-License-Identifier: Apache-2.0
#include "runtime/managed/HostedRounds.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <set>
#include <vector>

namespace pumpgraph::runtime {
namespace {

Description stepOf(std::size_t buffers, std::initializer_list<std::initializer_list<BufferIndex>> operands) {
  Description step;
  step.buffers.resize(buffers);
  for (Buffer &buffer : step.buffers)
    buffer.size = step.pageBytes;
  for (const auto &ofNode : operands)
    for (Node &node = step.nodes.emplace_back(); const BufferIndex buffer : ofNode)
      node.accesses.push_back({.buffer = buffer, .range = {0, step.buffers[buffer].size}});
  return step;
}

using Rounds = std::vector<std::uint8_t>;

TEST(HostedRounds, OperandsOfANodeAreInDifferentOnes) {
  // Values 0 to 3 and weights 4 to 6: each node reads a value and a weight and writes the next value.
  const Description step = stepOf(7, {{0, 4, 1}, {1, 5, 2}, {2, 6, 3}});
  const Rounds rounds = hostedRounds(step, std::vector<bool>(7, true), 3);
  for (const Node &node : step.nodes) {
    std::set<std::uint8_t> used;
    for (const Access &access : node.accesses)
      EXPECT_TRUE(used.insert(rounds[access.buffer]).second);
  }
}

TEST(HostedRounds, WhatIsNoCandidateHasNone) {
  const Description step = stepOf(3, {{0, 1, 2}});
  EXPECT_EQ(hostedRounds(step, {false, true, true}, 4), (Rounds{0, 0, 1}));
}

// The fourth operand cannot have a round of its own, so it is with the smallest of the others.
TEST(HostedRounds, FewBytesAreTogetherWhereOperandsAreMany) {
  Description step = stepOf(4, {{0, 1, 2, 3}});
  step.nodes[0].accesses[1].range.size = 100;
  EXPECT_EQ(hostedRounds(step, std::vector<bool>(4, true), 3), (Rounds{0, 1, 2, 1}));
  EXPECT_EQ(hostedRounds(step, std::vector<bool>(4, true), 1), (Rounds{0, 0, 0, 0}));
}

TEST(HostedRounds, ManyOperandsAreSpreadEvenly) {
  Description step = stepOf(40, {{}});
  for (BufferIndex buffer = 0; buffer < 40; ++buffer)
    step.nodes[0].accesses.push_back({.buffer = buffer, .range = {0, step.pageBytes}});
  std::vector<int> count(4, 0);
  for (const std::uint8_t round : hostedRounds(step, std::vector<bool>(40, true), 4))
    ++count[round];
  EXPECT_EQ(count, (std::vector<int>{10, 10, 10, 10}));
}

} // namespace
} // namespace pumpgraph::runtime
