// SPDX-License-Identifier: Apache-2.0
// What a rewritten step must still contain of the captured one.
#include "passes/check/CheckResidency.h"
#include "test/unit/check/StepBuilder.h"
#include "test/unit/check/ViolationMatchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pumpgraph::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// first => second -> third, the first of the two edges programmatic.
struct CheckPreserves : testing::Test {
  CheckPreserves() {
    builder.unordered();
    const BufferIndex a = builder.buffer("a", {0}, StepBuilder::liveInOut);
    first = builder.kernel("first", {builder.update(a)});
    second = builder.kernel("second", {});
    third = builder.kernel("third", {builder.update(a)});
    builder.edge(first, second, EdgeKind::Programmatic);
    builder.edge(second, third);
    rewritten = captured();
  }

  const Description &captured() { return builder.step(); }
  std::vector<Violation> check() { return checkPreserves(captured(), rewritten); }

  StepBuilder builder{1};
  NodeIndex first = 0;
  NodeIndex second = 0;
  NodeIndex third = 0;
  Description rewritten;
};

TEST_F(CheckPreserves, acceptsAddedNodesAndEdges) {
  Node evict;
  evict.kind = NodeKind::Evict;
  evict.range = {0, 4};
  rewritten.nodes.push_back(evict);
  rewritten.edges.push_back({third, 3});
  rewritten.edges.push_back({first, third});
  rewritten.buffers[0].resident = {{0, 4}};
  EXPECT_THAT(check(), IsEmpty());
}

TEST_F(CheckPreserves, acceptsAnotherTopologicalOrder) {
  Node prefetch;
  prefetch.kind = NodeKind::Prefetch;
  prefetch.range = {0, 4};
  rewritten.nodes.insert(rewritten.nodes.begin(), prefetch);
  rewritten.edges = {{0, 1}, {1, 2, EdgeKind::Programmatic}, {2, 3}};
  EXPECT_THAT(check(), IsEmpty());
}

TEST_F(CheckPreserves, programmaticEdgeMayBecomeFull) {
  rewritten.edges[0].kind = EdgeKind::Full;
  EXPECT_THAT(check(), IsEmpty());
}

TEST_F(CheckPreserves, purityMayBeForgottenButNotClaimed) {
  rewritten.nodes[first].isPure = true;
  EXPECT_THAT(check(), ElementsAre(says("captured node 0 \"first\" has become pure")));
  builder.step().nodes[first].isPure = true;
  EXPECT_THAT(check(), IsEmpty());
  rewritten.nodes[first].isPure = false;
  EXPECT_THAT(check(), IsEmpty());
}

TEST_F(CheckPreserves, whatIsAsideMayBeForgottenButNotClaimed) {
  builder.step().nodes[first].isPure = rewritten.nodes[first].isPure = true;
  rewritten.nodes[first].accesses[0].isAside = true;
  EXPECT_THAT(check(), ElementsAre(says("an access of captured node 0 \"first\" has become aside")));
  builder.step().nodes[first].accesses[0].isAside = true;
  EXPECT_THAT(check(), IsEmpty());
  rewritten.nodes[first].accesses[0].isAside = false;
  EXPECT_THAT(check(), IsEmpty());
}

TEST_F(CheckPreserves, fullEdgeMayNotBecomeProgrammatic) {
  rewritten.edges[1].kind = EdgeKind::Programmatic;
  EXPECT_THAT(check(),
              ElementsAre(says("must wait for node 1 \"second\", but nothing makes it wait for completion: the "
                               "edge has become programmatic")));
}

TEST_F(CheckPreserves, edgesMayNotGo) {
  rewritten.edges.pop_back();
  EXPECT_THAT(check(), ElementsAre(says("node 2 \"third\" must wait for node 1 \"second\"")));
  rewritten.edges.clear();
  EXPECT_THAT(check(), ElementsAre(says("must be launched after node 0 \"first\""), says("must wait for")));
}

TEST_F(CheckPreserves, edgeMayBecomeAPath) {
  Node advise;
  advise.kind = NodeKind::Advise;
  rewritten.nodes.insert(rewritten.nodes.begin() + third, advise);
  rewritten.edges = {{0, 1, EdgeKind::Programmatic}, {1, 2}, {2, 3}};
  EXPECT_THAT(check(), IsEmpty());
}

TEST_F(CheckPreserves, nodesMayNotGo) {
  rewritten.nodes.pop_back();
  rewritten.edges.pop_back();
  EXPECT_THAT(check(), ElementsAre(says("captured node 2 \"third\" is gone")));
}

TEST_F(CheckPreserves, nodesMayNotAppearTwice) {
  rewritten.nodes.push_back(rewritten.nodes[third]);
  EXPECT_THAT(check(), ElementsAre(says("are both captured node 2")));
}

TEST_F(CheckPreserves, kernelsMayNotBeAdded) {
  rewritten.nodes.push_back(rewritten.nodes[third]);
  rewritten.nodes.back().captured = 3;
  EXPECT_THAT(check(), ElementsAre(says("claims to be captured node 3, which does not exist")));
  rewritten.nodes.back().captured = notCaptured;
  EXPECT_THAT(check(), ElementsAre(says("is no transfer but is not a captured node either")));
}

TEST_F(CheckPreserves, accessesStayTheSame) {
  rewritten.nodes[first].accesses[0].may = modeRead;
  EXPECT_THAT(check(), ElementsAre(says("captured node 0 \"first\" has other accesses")));
  rewritten.nodes[first].accesses.clear();
  EXPECT_THAT(check(), ElementsAre(says("captured node 0 \"first\" has other accesses")));
}

TEST_F(CheckPreserves, evidenceAndCostMayChange) {
  rewritten.nodes[first].accesses[0].evidence = Evidence::Proved;
  rewritten.nodes[first].costUs = 3;
  EXPECT_THAT(check(), IsEmpty());
}

TEST_F(CheckPreserves, nodesStayThemselves) {
  rewritten.nodes[second].name = "other_kernel";
  EXPECT_THAT(check(), ElementsAre(says("has become another node")));
}

TEST_F(CheckPreserves, renamableBuffersMayGoOnAtAnotherAddress) {
  Description before = captured();
  rewritten.buffers.push_back(before.buffers[0]);
  rewritten.buffers[1].continues = 0;
  rewritten.nodes[third].accesses[0].buffer = 1;
  EXPECT_THAT(checkPreserves(before, rewritten), ElementsAre(says("is not renamable")));
  before.buffers[0].isRenamable = true;
  EXPECT_THAT(checkPreserves(before, rewritten), IsEmpty());
  rewritten.nodes[third].accesses[0].range.size = 1;
  EXPECT_THAT(checkPreserves(before, rewritten), ElementsAre(says("has other accesses than before")));
}

TEST_F(CheckPreserves, buffersStayTheSame) {
  rewritten.buffers[0].liveOut = false;
  EXPECT_THAT(check(), ElementsAre(says("buffer 0 \"a\" has changed")));
  rewritten.buffers.emplace_back();
  EXPECT_THAT(check(), ElementsAre(says("1 buffers have become 2")));
}

} // namespace
} // namespace pumpgraph::test
