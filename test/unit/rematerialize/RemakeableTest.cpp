// SPDX-License-Identifier: Apache-2.0
#include "passes/rematerialize/Remakeable.h"

#include "test/unit/rematerialize/PureStep.h"

#include <gtest/gtest.h>

#include <numeric>

namespace pumpgraph::test {
namespace {

using Against = Remakeable::Against;

class RemakeableBytes : public testing::Test {
protected:
  /// The last node reads all: it is the peak.
  Remakeable find(const std::vector<BufferIndex> &read) {
    std::vector<Access> accesses;
    for (const BufferIndex buffer : read)
      accesses.push_back(step_.read(buffer));
    step_.impure("peak", accesses);
    const Remakeable found = findRemakeable(step_.step());
    const std::uint64_t against =
        std::accumulate(found.obstacles.begin(), found.obstacles.end(), std::uint64_t{0},
                        [](std::uint64_t sum, const Remakeable::Obstacle &obstacle) { return sum + obstacle.bytes; });
    EXPECT_EQ(found.again + found.before + against, found.bytes);
    return found;
  }
  PureStep step_;
};

TEST_F(RemakeableBytes, areThoseOfPureNodes) {
  const BufferIndex x = step_.buffer("x", {0, 0}, StepBuilder::liveInOut), a = step_.buffer("a"), b = step_.buffer("b");
  step_.pure("make a", {step_.read(x), step_.write(a)});
  step_.pure("make b", {step_.read(a), step_.write(b)});
  const Remakeable found = find({a, b});
  EXPECT_EQ(found.bytes, 16U);
  EXPECT_EQ(found.before, 8U);
  EXPECT_EQ(found.again, 8U);
  EXPECT_TRUE(found.obstacles.empty());
}

TEST_F(RemakeableBytes, areNotThoseOfOtherNodesNorWhatReadsTheseOnceTheyAreWrittenOver) {
  const BufferIndex a = step_.buffer("a"), b = step_.buffer("b"), c = step_.buffer("c", {0, 0});
  step_.impure("draw", {step_.write(a)});
  step_.pure("make b", {step_.read(a), step_.write(b)});
  step_.pure("make c", {step_.write(a), step_.write(c)});
  const Remakeable found = find({a, b, c});
  EXPECT_EQ(found.again, 12U);
  ASSERT_EQ(found.obstacles.size(), 1U);
  EXPECT_EQ(found.obstacles[0].against, Against::NotPure);
  EXPECT_EQ(found.obstacles[0].name, "draw");
  EXPECT_EQ(found.obstacles[0].bytes, 4U);
}

TEST_F(RemakeableBytes, areNotThoseOfNodesThatLeaveSomethingLasting) {
  const BufferIndex a = step_.buffer("a"), out = step_.buffer("out", StepBuilder::liveOut);
  step_.pure("make", {step_.write(a), step_.write(out)});
  step_.step().nodes[0].label = "layer";
  const Remakeable found = find({a});
  EXPECT_EQ(found.again, 0U);
  ASSERT_EQ(found.obstacles.size(), 1U);
  EXPECT_EQ(found.obstacles[0].against, Against::Lasting);
  EXPECT_EQ(found.obstacles[0].name, "layer");
  EXPECT_EQ(found.obstacles[0].bytes, 8U);
}

TEST_F(RemakeableBytes, haveObstaclesByOperator) {
  const BufferIndex a = step_.buffer("a"), b = step_.buffer("b"), c = step_.buffer("c");
  step_.impure("rand", {step_.write(a)});
  step_.impure("rand", {step_.write(b)});
  step_.impure("rand", {step_.write(c)});
  step_.step().nodes[0].label = "layer1 forward (rand_like)";
  step_.step().nodes[1].label = "layer2 forward (rand_like)";
  const Remakeable found = find({a, b, c});
  ASSERT_EQ(found.obstacles.size(), 2U);
  EXPECT_EQ(found.obstacles[0].name, "rand_like");
  EXPECT_EQ(found.obstacles[0].bytes, 8U);
  EXPECT_EQ(found.obstacles[1].name, "rand");
  const std::vector<std::pair<BufferIndex, Range>> everywhere{{a, {0, 4}}, {b, {0, 4}}, {c, {0, 4}}};
  EXPECT_EQ(found.alive, everywhere);
}

TEST_F(RemakeableBytes, areNotThoseOfInputsThatAreOverwritten) {
  const BufferIndex x = step_.buffer("x", StepBuilder::liveInOut), a = step_.buffer("a"), b = step_.buffer("b");
  step_.pure("make", {step_.read(x), step_.write(a)});
  step_.impure("update", {step_.update(x), step_.write(b)});
  const Remakeable found = find({a, b});
  EXPECT_EQ(found.again, 0U);
  EXPECT_EQ(found.bytes, 12U);
  ASSERT_EQ(found.obstacles.size(), 2U);
  for (const Remakeable::Obstacle &obstacle : found.obstacles)
    EXPECT_EQ(obstacle.name, obstacle.against == Against::Overwritten ? "x" : "update");
}

TEST_F(RemakeableBytes, areThoseOfChainsInPlace) {
  const BufferIndex a = step_.buffer("a");
  step_.pure("make", {step_.write(a)});
  step_.pure("update", {step_.update(a)});
  EXPECT_EQ(find({a}).again, 4U);
}

TEST_F(RemakeableBytes, areNoneInAnEmptyStep) {
  EXPECT_EQ(findRemakeable(step_.step()).bytes, 0U);
}

} // namespace
} // namespace pumpgraph::test
