// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Order.h"
#include "passes/rematerialize/Sequence.h"
#include "test/unit/rematerialize/PureStep.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pumpgraph::test {
namespace {

bool hasEdge(const Description &step, NodeIndex from, NodeIndex to, EdgeKind kind = EdgeKind::Full) {
  return std::ranges::any_of(step.edges,
                             [&](const Edge &edge) { return edge.from == from && edge.to == to && edge.kind == kind; });
}

TEST(WithRepetitions, standsBetweenNodes) {
  PureStep step;
  const BufferIndex a = step.buffer("a"), b = step.buffer("b");
  step.pure("make", {step.write(a)});
  step.impure("other", {step.write(b)});
  step.impure("read", {step.read(a)});
  const Description repeating = withRepetitions(step.step(), {{0}, {1}, {0, true}, {2}});
  ASSERT_EQ(repeating.nodes.size(), 4U);
  const Node &again = repeating.nodes[2];
  EXPECT_EQ(again.kind, NodeKind::Rematerialize);
  EXPECT_EQ(again.repeats, 0);
  EXPECT_EQ(again.captured, notCaptured);
  EXPECT_EQ(again.name, "make");
  EXPECT_EQ(repeating.nodes[3].captured, 2);
  EXPECT_TRUE(hasEdge(repeating, 1, 2)); // as the node that it is for
  EXPECT_TRUE(hasEdge(repeating, 2, 3));
  EXPECT_TRUE(hasEdge(repeating, 1, 3));
}

TEST(WithRepetitions, isTheCapturedStepWithoutAny) {
  PureStep step;
  const BufferIndex a = step.buffer("a");
  step.pure("make", {step.write(a)});
  step.impure("read", {step.read(a)});
  step.step().edges[0].kind = EdgeKind::Programmatic;
  const Description same = withRepetitions(step.step(), {{0}, {1}});
  EXPECT_EQ(same.nodes.size(), 2U);
  ASSERT_EQ(same.edges.size(), 1U);
  EXPECT_EQ(same.edges[0].kind, EdgeKind::Programmatic);
}

TEST(WithRepetitions, followOneAnother) {
  PureStep step;
  const BufferIndex a = step.buffer("a"), b = step.buffer("b"), c = step.buffer("c");
  step.pure("make a", {step.write(a)});
  step.pure("make b", {step.read(a), step.write(b)});
  step.impure("other", {step.write(c)});
  step.impure("read b", {step.read(b)});
  const Description repeating = withRepetitions(step.step(), {{0}, {1}, {2}, {0, true}, {1, true}, {3}});
  EXPECT_TRUE(hasEdge(repeating, 2, 3));
  EXPECT_TRUE(hasEdge(repeating, 3, 4));
  EXPECT_TRUE(hasEdge(repeating, 4, 5));
  EXPECT_FALSE(hasEdge(repeating, 2, 4));
}

TEST(WithRepetitions, waitForReadersInOtherBranches) {
  PureStep step;
  const BufferIndex a = step.buffer("a");
  step.unordered();
  const NodeIndex make = step.pure("make", {step.write(a)});
  const NodeIndex left = step.impure("left", {step.read(a)});
  const NodeIndex right = step.impure("right", {step.read(a)});
  step.edge(make, left);
  step.edge(make, right);
  const Description repeating = withRepetitions(step.step(), {{0}, {1}, {0, true}, {2}});
  const Order order(repeating);
  EXPECT_TRUE(order.completesBefore(0, 2));
  EXPECT_TRUE(order.completesBefore(1, 2)); // it is written while nobody reads
  EXPECT_TRUE(order.completesBefore(2, 3));
}

TEST(WithRepetitions, waitForNoBranchThatTheyHaveNothingToDoWith) {
  PureStep step;
  const BufferIndex a = step.buffer("a"), b = step.buffer("b");
  step.unordered();
  const NodeIndex make = step.pure("make", {step.write(a)});
  const NodeIndex other = step.impure("other", {step.write(b)});
  const NodeIndex read = step.impure("read", {step.read(a)});
  step.edge(make, read);
  const Description repeating = withRepetitions(step.step(), {{make}, {other}, {make, true}, {read}});
  EXPECT_FALSE(Order(repeating).completesBefore(1, 2));
}

TEST(WithRepetitions, haveFullEdges) {
  PureStep step;
  const BufferIndex a = step.buffer("a");
  step.unordered();
  const NodeIndex make = step.pure("make", {step.write(a)});
  const NodeIndex update = step.pure("update", {step.update(a)});
  const NodeIndex read = step.impure("read", {step.read(a)});
  step.edge(make, update, EdgeKind::Programmatic);
  step.edge(update, read, EdgeKind::Programmatic);
  const Description repeating = withRepetitions(step.step(), {{make}, {update}, {make, true}, {update, true}, {read}});
  EXPECT_TRUE(hasEdge(repeating, 0, 1, EdgeKind::Programmatic));
  for (const Edge &edge : repeating.edges)
    if (edge.from == 2 || edge.from == 3 || edge.to == 2 || edge.to == 3) {
      EXPECT_EQ(edge.kind, EdgeKind::Full);
    }
  // A programmatic edge orders nothing by completion: the first writer needs an edge of its own.
  const Order order(repeating);
  EXPECT_TRUE(order.completesBefore(0, 2));
  EXPECT_TRUE(order.completesBefore(1, 2));
  EXPECT_TRUE(order.completesBefore(0, 3));
}

} // namespace
} // namespace pumpgraph::test
