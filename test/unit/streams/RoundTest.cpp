// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/Round.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pumpgraph::runtime::test {
namespace {

constexpr RoundBlock weights{0x1000000, 4096}, activations{0x2000000, 8192}, outside{0x3000000, 512, false};
constexpr RoundStream legacy{0}, compute{1, false}, copies{2, false}, blocking{3, true};

RoundAccess whole(const RoundBlock &block) {
  return {block, {0, block.bytes}};
}

bool hasEdge(const Description &step, NodeIndex from, NodeIndex to) {
  return std::find(step.edges.begin(), step.edges.end(), Edge{from, to}) != step.edges.end();
}

/// A call without accesses.
void call(Round &round, const RoundStream &stream) {
  round.begin(NodeKind::Kernel, "kernel", stream);
}

TEST(RoundTest, callsOfAStreamFollowOneAnother) {
  Round round;
  call(round, compute);
  call(round, copies);
  call(round, compute);
  const Description step = round.describe("round");
  EXPECT_EQ(validate(step), "");
  EXPECT_EQ(step.edges, (std::vector<Edge>{{0, 2}}));
}

TEST(RoundTest, aWaitFollowsTheRecord) {
  Round round;
  call(round, compute);
  round.records(7, round.before(compute));
  call(round, compute); // behind the record
  round.waits(copies, 7);
  call(round, copies);
  const Description step = round.describe("round");
  EXPECT_TRUE(hasEdge(step, 0, 2));
  EXPECT_FALSE(hasEdge(step, 1, 2));
}

TEST(RoundTest, aRecordCarriesTheWaitsOfItsStream) {
  Round round;
  call(round, compute);
  round.records(7, round.before(compute));
  round.waits(copies, 7);
  round.records(8, round.before(copies)); // without a call of its own
  round.waits(blocking, 8);
  call(round, blocking);
  EXPECT_TRUE(hasEdge(round.describe("round"), 0, 1));
}

TEST(RoundTest, aRecordOfAnEarlierRoundOrdersNothing) {
  Round round;
  call(round, compute);
  round.waits(copies, 7);
  call(round, copies);
  EXPECT_TRUE(round.describe("round").edges.empty());
}

TEST(RoundTest, theLegacyDefaultStreamAndBlockingStreamsFollowEachOther) {
  Round round;
  call(round, blocking);
  call(round, compute);
  call(round, legacy);
  call(round, blocking);
  call(round, compute);
  const Description step = round.describe("round");
  EXPECT_TRUE(hasEdge(step, 0, 2));
  EXPECT_TRUE(hasEdge(step, 2, 3));
  EXPECT_FALSE(hasEdge(step, 1, 2));
  EXPECT_FALSE(hasEdge(step, 2, 4));
  EXPECT_TRUE(hasEdge(step, 1, 4));
}

TEST(RoundTest, valuesOutsideOfTheRoundLiveOn) {
  Round round;
  call(round, compute);
  round.access(whole(weights));
  round.access(whole(outside));
  const Description step = round.describe("round");
  ASSERT_EQ(step.buffers.size(), 2U);
  EXPECT_TRUE(step.buffers[0].isPrivate && step.buffers[0].liveIn && step.buffers[0].liveOut);
  EXPECT_FALSE(step.buffers[1].isPrivate);
  EXPECT_EQ(step.nodes[0].accesses[0].evidence, Evidence::Assumed);
  EXPECT_EQ(step.nodes[0].accesses[0].may, modeReadWrite);
}

TEST(RoundTest, memoryOfTheRoundHasNoValueAtItsBoundary) {
  Round round;
  round.allocated(activations);
  call(round, compute);
  round.access(whole(activations));
  call(round, compute);
  round.access(whole(activations));
  round.freed(activations);
  const Description step = round.describe("round");
  EXPECT_EQ(validate(step), "");
  EXPECT_FALSE(step.buffers[0].liveIn || step.buffers[0].liveOut);
  EXPECT_EQ(step.nodes[0].accesses[0].evidence, Evidence::Allocated);
  EXPECT_EQ(step.nodes[0].accesses[0].must, modeWrite);
  EXPECT_EQ(step.nodes[1].accesses[0].evidence, Evidence::Assumed);
}

TEST(RoundTest, memoryThatIsFreedBeforeItIsAllocatedAgainHasAValueAtTheStart) {
  Round round;
  call(round, compute);
  round.access(whole(activations));
  round.freed(activations);
  round.allocated(activations);
  call(round, compute);
  round.access(whole(activations));
  const Description step = round.describe("round");
  EXPECT_TRUE(step.buffers[0].liveIn && step.buffers[0].liveOut);
  EXPECT_EQ(step.nodes[1].accesses[0].evidence, Evidence::Allocated);
}

TEST(RoundTest, memoryWithoutAUseIsNoBuffer) {
  Round round;
  round.allocated(activations);
  round.freed(activations);
  call(round, compute);
  round.access(whole(weights));
  const Description step = round.describe("round");
  ASSERT_EQ(step.buffers.size(), 1U);
  EXPECT_EQ(step.buffers[0].address, weights.address);
  EXPECT_EQ(step.nodes[0].accesses[0].buffer, 0U);
}

TEST(RoundTest, twoWordsIntoABlockAreOneAccess) {
  Round round;
  call(round, compute);
  round.access({activations, {0, 256}, modeRead, modeRead, Evidence::Proved, 0});
  round.access({activations, {1024, 256}, modeWrite, modeWrite, Evidence::Proved, 1});
  const Description step = round.describe("round");
  ASSERT_EQ(step.nodes[0].accesses.size(), 1U);
  EXPECT_EQ(step.nodes[0].accesses[0].range, (Range{0, 1280}));
  EXPECT_EQ(step.nodes[0].accesses[0].may, modeReadWrite);
  EXPECT_EQ(step.nodes[0].accesses[0].must, modeNone);
  EXPECT_EQ(step.nodes[0].accesses[0].parameter, unknownParameter);
}

TEST(RoundTest, anExactAccessStays) {
  Round round;
  round.begin(NodeKind::Memset, "fill", compute);
  round.access({activations, {1024, 256}, modeWrite, modeWrite, Evidence::Proved});
  const Description step = round.describe("round");
  const Access &access = step.nodes[0].accesses[0];
  EXPECT_EQ(access.range, (Range{1024, 256}));
  EXPECT_EQ(access.must, modeWrite);
}

} // namespace
} // namespace pumpgraph::runtime::test
