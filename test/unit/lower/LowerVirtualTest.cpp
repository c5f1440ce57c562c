// SPDX-License-Identifier: Apache-2.0
#include "passes/lower/LowerVirtual.h"

#include "passes/analysis/Order.h"
#include "passes/check/CheckResidency.h"
#include "passes/plan/PlanResidency.h"
#include "test/unit/analysis/SmallStep.h"
#include "test/unit/plan/RegularStep.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pumpgraph {
namespace {

using test::smallPage;
using test::SmallStep;

std::vector<Node> nodesOf(const Description &step, NodeKind kind) {
  std::vector<Node> nodes;
  std::copy_if(step.nodes.begin(), step.nodes.end(), std::back_inserter(nodes),
               [&](const Node &node) { return node.kind == kind; });
  return nodes;
}

bool hasEdge(const Description &step, NodeIndex from, NodeIndex to) {
  return std::any_of(step.edges.begin(), step.edges.end(),
                     [&](const Edge &edge) { return edge.from == from && edge.to == to; });
}

TEST(LowerVirtual, TransfersBecomeCopiesWithOnePlaceAPage) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4);
  const NodeIndex write = small.kernel("write", 1, {small.write(a)});
  const NodeIndex evict = small.residency(NodeKind::Evict, a, 1, 2);
  const NodeIndex prefetch = small.residency(NodeKind::Prefetch, a, 2, 1);
  small.edge(write, evict);
  small.edge(evict, prefetch);
  const Description lowered = lowerVirtual(small.step);
  ASSERT_EQ(lowered.nodes.size(), 3u);
  EXPECT_EQ(lowered.nodes[1].kind, NodeKind::CopyToHost);
  EXPECT_EQ(lowered.nodes[2].kind, NodeKind::CopyToDevice);
  EXPECT_EQ(lowered.nodes[2].hostOffset, lowered.nodes[1].hostOffset + smallPage);
  EXPECT_EQ(lowered.hostBytes, 2 * smallPage);
}

TEST(LowerVirtual, ADiscardBecomesTheEdgesItStoodFor) {
  SmallStep small;
  const BufferIndex a = small.local("a", 1);
  const NodeIndex before = small.alone("before", 1, {}), also = small.alone("also", 1, {});
  const NodeIndex discard = small.residency(NodeKind::Discard, a, 0, 1);
  const NodeIndex after = small.alone("after", 1, {});
  small.edge(before, discard);
  small.edge(also, discard);
  small.edge(discard, after);
  const Description lowered = lowerVirtual(small.step);
  ASSERT_EQ(lowered.nodes.size(), 3u);
  EXPECT_TRUE(hasEdge(lowered, before, after - 1));
  EXPECT_TRUE(hasEdge(lowered, also, after - 1));
}

TEST(LowerVirtual, ADiscardsEdgeDemotesTheProgrammaticOneBetweenTheSameNodes) {
  SmallStep small;
  const BufferIndex a = small.local("a", 1);
  const NodeIndex first = small.alone("first", 1, {});
  const NodeIndex discard = small.residency(NodeKind::Discard, a, 0, 1);
  const NodeIndex second = small.alone("second", 1, {});
  small.edge(first, second, EdgeKind::Programmatic);
  small.edge(first, discard);
  small.edge(discard, second);
  const Description lowered = lowerVirtual(small.step);
  ASSERT_EQ(lowered.edges.size(), 1u);
  EXPECT_EQ(lowered.edges[0].kind, EdgeKind::Full);
}

TEST(LowerVirtual, AProgrammaticEdgeThatNothingNeedsStays) {
  SmallStep small;
  const NodeIndex first = small.alone("first", 1, {}), second = small.alone("second", 1, {});
  small.edge(first, second, EdgeKind::Programmatic);
  small.step.stage = Stage::Planned;
  EXPECT_EQ(lowerVirtual(small.step).edges[0].kind, EdgeKind::Programmatic);
}

/// Two evictions of neighbouring pages, one after the other in their lane.
struct TwoEvictions {
  SmallStep small;
  NodeIndex write, first, second, next;

  TwoEvictions() {
    const BufferIndex a = small.local("a", 4);
    write = small.kernel("write", 1, {small.write(a)});
    first = small.residency(NodeKind::Evict, a, 0, 2);
    second = small.residency(NodeKind::Evict, a, 2, 2);
    next = small.alone("next", 1, {});
    small.edge(write, first);
    small.edge(write, second);
    small.edge(first, second);
    small.edge(second, next);
  }
};

TEST(LowerVirtual, NeighboursAreJoined) {
  TwoEvictions two;
  two.small.edge(two.first, two.next);
  const std::vector<Node> copies = nodesOf(lowerVirtual(two.small.step), NodeKind::CopyToHost);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].range, (Range{0, 4 * smallPage}));
}

/// Three evictions of as many buffers, of which the second and the third are joined to those before them.
Description threeRows(std::uint64_t pagesOfThird) {
  SmallStep small;
  std::vector<BufferIndex> buffers;
  std::int32_t frame = 0;
  for (const std::uint64_t pages : {std::uint64_t{1}, std::uint64_t{1}, pagesOfThird}) {
    buffers.push_back(small.local("buffer", pages));
    for (std::uint64_t page = 0; page < pages; ++page)
      small.step.buffers.back().frames.push_back(frame++);
  }
  NodeIndex last =
      small.kernel("write", 1, {small.write(buffers[0]), small.write(buffers[1]), small.write(buffers[2])});
  for (const BufferIndex buffer : buffers) {
    const NodeIndex evict =
        small.residency(NodeKind::Evict, buffer, 0, buffer == buffers[2] ? pagesOfThird : std::uint64_t{1});
    small.step.nodes[evict].joined = buffer != buffers[0];
    small.edge(last, evict);
    last = evict;
  }
  small.edge(last, small.alone("next", 1, {}));
  return small.step;
}

TEST(LowerVirtual, RowsStayJoinedAndLieAtOneDistance) {
  const std::vector<Node> copies = nodesOf(lowerVirtual(threeRows(1)), NodeKind::CopyToHost);
  ASSERT_EQ(copies.size(), 3u);
  EXPECT_FALSE(copies[0].joined);
  EXPECT_TRUE(copies[1].joined && copies[2].joined);
  EXPECT_EQ(copies[2].hostOffset - copies[1].hostOffset, copies[1].hostOffset - copies[0].hostOffset);
}

TEST(LowerVirtual, RowsOfAnotherSizeAreTakenApart) {
  const std::vector<Node> copies = nodesOf(lowerVirtual(threeRows(2)), NodeKind::CopyToHost);
  ASSERT_EQ(copies.size(), 3u);
  EXPECT_TRUE(copies[1].joined);
  EXPECT_FALSE(copies[2].joined);
}

TEST(LowerVirtual, NeighboursOfWhichOneIsNeededEarlierAreNot) {
  TwoEvictions two;
  const NodeIndex early = two.small.alone("early", 1, {});
  two.small.edge(two.first, early);
  EXPECT_EQ(nodesOf(lowerVirtual(two.small.step), NodeKind::CopyToHost).size(), 2u);
}

TEST(LowerVirtual, NeighboursOfWhichOneWaitsLongerAreNot) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4);
  const NodeIndex write = small.kernel("write", 1, {small.write(a)});
  const NodeIndex more = small.kernel("more", 1, {small.update(a)});
  const NodeIndex first = small.residency(NodeKind::Evict, a, 0, 2);
  const NodeIndex second = small.residency(NodeKind::Evict, a, 2, 2);
  small.edge(write, first);
  small.edge(more, second);
  small.edge(first, second);
  EXPECT_EQ(nodesOf(lowerVirtual(small.step), NodeKind::CopyToHost).size(), 2u);
}

TEST(LowerVirtual, ImpliedEdgesAreLeftOut) {
  SmallStep small;
  const BufferIndex a = small.local("a", 1);
  const NodeIndex k0 = small.kernel("k0", 1, {}), k1 = small.kernel("k1", 1, {});
  const NodeIndex evict = small.residency(NodeKind::Evict, a, 0, 1);
  small.edge(k0, evict);
  small.edge(k1, evict);
  const Description lowered = lowerVirtual(small.step);
  EXPECT_TRUE(hasEdge(lowered, k1, evict));
  EXPECT_FALSE(hasEdge(lowered, k0, evict));
}

/// Three kernels, the second of which may start before the first has ended; perhaps a copy between first and last.
Description stepWithDetour(bool hasCopy) {
  SmallStep small;
  small.step.stage = Stage::Planned;
  const BufferIndex a = small.local("a", 1);
  const NodeIndex k0 = small.alone("k0", 1, {}), k1 = small.alone("k1", 1, {});
  const NodeIndex evict = hasCopy ? small.residency(NodeKind::Evict, a, 0, 1) : k1;
  const NodeIndex k2 = small.alone("k2", 1, {});
  small.edge(k0, k1, EdgeKind::Programmatic);
  small.edge(k0, k2);
  small.edge(k1, k2);
  if (hasCopy) {
    small.edge(k0, evict);
    small.edge(evict, k2);
  }
  return small.step;
}

TEST(LowerVirtual, CapturedNodesOfAStepWithCopiesAreOneChain) {
  const Description lowered = lowerVirtual(stepWithDetour(true));
  ASSERT_EQ(lowered.nodes.size(), 4u);
  const NodeIndex k0 = 0, k1 = 1, evict = 2, k2 = 3;
  EXPECT_TRUE(hasEdge(lowered, k0, k1));
  EXPECT_TRUE(hasEdge(lowered, k1, k2));
  EXPECT_FALSE(hasEdge(lowered, k0, k2)); // implied since the first edge waits for completion
  EXPECT_TRUE(hasEdge(lowered, k0, evict));
  EXPECT_TRUE(hasEdge(lowered, evict, k2));
  for (const Edge &edge : lowered.edges)
    EXPECT_EQ(edge.kind, EdgeKind::Full);
}

TEST(LowerVirtual, CapturedEdgesOfAStepWithoutCopiesStay) {
  const Description step = stepWithDetour(false), lowered = lowerVirtual(step);
  ASSERT_EQ(lowered.edges.size(), step.edges.size());
  EXPECT_TRUE(hasEdge(lowered, 0, 2));
  EXPECT_EQ(std::count_if(lowered.edges.begin(), lowered.edges.end(),
                          [](const Edge &edge) { return edge.kind == EdgeKind::Programmatic; }),
            1);
}

// A captured chain is not left out where a copy leads the same way round.
TEST(LowerVirtual, ACopyDoesNotStandInForACapturedEdge) {
  SmallStep small;
  const BufferIndex a = small.local("a", 1);
  const NodeIndex k0 = small.alone("k0", 1, {});
  const NodeIndex evict = small.residency(NodeKind::Evict, a, 0, 1);
  const NodeIndex k1 = small.alone("k1", 1, {});
  small.edge(k0, k1);
  small.edge(k0, evict);
  small.edge(evict, k1);
  EXPECT_TRUE(hasEdge(lowerVirtual(small.step), k0, k1));
}

TEST(LowerVirtual, CopiesOfADirectionFollowOneAnother) {
  SmallStep small;
  const BufferIndex a = small.local("a", 1), b = small.local("b", 1);
  const NodeIndex down = small.residency(NodeKind::Evict, a, 0, 1);
  const NodeIndex kernel = small.alone("kernel", 1, {});
  const NodeIndex downToo = small.residency(NodeKind::Evict, b, 0, 1);
  small.edge(down, kernel);
  small.edge(kernel, downToo);
  EXPECT_TRUE(hasEdge(lowerVirtual(small.step), down, downToo)); // though implied
}

TEST(LowerVirtual, APlanWithoutTransfersStaysAsItIs) {
  const Description step = test::regularStep({});
  const PlannedStep plan = *planResidency(step, {});
  const Description lowered = lowerVirtual(plan.description);
  EXPECT_EQ(lowered.nodes.size(), step.nodes.size());
  EXPECT_EQ(lowered.hostBytes, 0u);
}

TEST(LowerVirtual, LoweredPlansAreAcceptedAndAddFewEdges) {
  test::RegularStepShape shape;
  shape.hasSideStream = true;
  shape.programmaticEvery = 7;
  const Description step = test::regularStep(shape);
  for (std::uint64_t mebi : {500, 800, 1500}) {
    const PlannedStep plan = *planResidency(step, {mebi << 20, Machine()});
    const Description lowered = lowerVirtual(plan.description);
    for (const Violation &violation : checkResidency(lowered))
      ADD_FAILURE() << violation.message;
    for (const Violation &violation : checkPreserves(step, lowered))
      ADD_FAILURE() << violation.message;
    EXPECT_EQ(lowered.hostBytes, plan.stats.hostBytes);
    const std::size_t addedNodes = lowered.nodes.size() - step.nodes.size();
    EXPECT_LE(lowered.edges.size() - step.edges.size(), 4 * addedNodes);
  }
}

} // namespace
} // namespace pumpgraph
