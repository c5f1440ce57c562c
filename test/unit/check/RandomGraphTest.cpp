// SPDX-License-Identifier: Apache-2.0
// The random steps are what they claim to be, and between them have everything that a real step can have.
#include "test/unit/check/RandomGraph.h"
#include "test/unit/check/StepBuilder.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pumpgraph::test {
namespace {

constexpr std::uint64_t stepCount = 3000;

TEST(RandomStep, isRaceFreeAndWellFormed) {
  for (std::uint64_t seed = 0; seed < stepCount; ++seed) {
    const Description step = randomStep(seed);
    ASSERT_TRUE(isRaceFree(step)) << "seed " << seed;
    ASSERT_EQ(validate(step), "") << "seed " << seed;
    ASSERT_GE(step.nodes.size(), 3U);
    ASSERT_LE(step.nodes.size(), 40U);
    ASSERT_LE(step.buffers.size(), 12U);
    for (const Buffer &buffer : step.buffers)
      ASSERT_TRUE(!buffer.isPrivate || !buffer.liveIn || buffer.liveOut) << "seed " << seed;
  }
}

TEST(RandomStep, isTheSameForTheSameSeed) {
  EXPECT_EQ(toText(randomStep(7)), toText(randomStep(7)));
  EXPECT_NE(toText(randomStep(7)), toText(randomStep(8)));
}

TEST(RandomStep, hasEverything) {
  const auto someStep = [](auto has) {
    for (std::uint64_t seed = 0; seed < stepCount; ++seed)
      if (has(randomStep(seed)))
        return true;
    return false;
  };
  const auto someNode = [&](auto has) {
    return someStep([&](const Description &step) { return std::any_of(step.nodes.begin(), step.nodes.end(), has); });
  };
  const auto someBuffer = [&](auto has) {
    return someStep(
        [&](const Description &step) { return std::any_of(step.buffers.begin(), step.buffers.end(), has); });
  };
  for (const NodeKind kind :
       {NodeKind::Kernel, NodeKind::Memcpy, NodeKind::Memset, NodeKind::Empty, NodeKind::ChildGraph, NodeKind::Opaque})
    EXPECT_TRUE(someNode([&](const Node &node) { return node.kind == kind; })) << static_cast<int>(kind);
  EXPECT_TRUE(someBuffer([](const Buffer &buffer) { return !buffer.isPrivate && buffer.liveIn && !buffer.liveOut; }));
  EXPECT_TRUE(someBuffer([](const Buffer &buffer) { return buffer.isPrivate && buffer.liveIn; }));
  EXPECT_TRUE(someBuffer([](const Buffer &buffer) { return buffer.isPrivate && !buffer.liveIn && buffer.liveOut; }));
  EXPECT_TRUE(someBuffer([](const Buffer &buffer) { return buffer.isPrivate && !buffer.liveOut; }));
  EXPECT_TRUE(someStep([](const Description &step) { return step.buffers[0].size % step.pageBytes != 0; }));
  EXPECT_TRUE(someStep([](const Description &step) {
    return std::any_of(step.edges.begin(), step.edges.end(),
                       [](const Edge &edge) { return edge.kind == EdgeKind::Programmatic; });
  }));
}

TEST(IsRaceFree, wantsConflictsOrdered) {
  for (const std::uint64_t overlap : {0, 1}) {
    StepBuilder builder(1);
    const BufferIndex a = builder.buffer("a", {0});
    builder.unordered();
    Access left = builder.read(a);
    left.range = {0, 2 + overlap};
    Access right = builder.write(a);
    right.range = {2, 2};
    const NodeIndex first = builder.kernel("first", {left});
    const NodeIndex second = builder.kernel("second", {right});
    EXPECT_EQ(isRaceFree(builder.step()), overlap == 0);
    builder.edge(first, second, EdgeKind::Programmatic);
    EXPECT_TRUE(isRaceFree(builder.step()));
  }
}

TEST(Shrink, keepsOnlyWhatMatters) {
  const auto writesTwice = [](const Description &step) {
    unsigned writes = 0;
    for (const Node &node : step.nodes)
      writes += std::any_of(node.accesses.begin(), node.accesses.end(),
                            [](const Access &access) { return (access.may & modeWrite) != 0; });
    return writes >= 2;
  };
  Description step = randomStep(3);
  for (std::uint64_t seed = 4; !writesTwice(step); ++seed)
    step = randomStep(seed);
  const Description small = shrink(step, writesTwice);
  EXPECT_EQ(small.nodes.size(), 2U) << toText(small);
  EXPECT_LE(small.buffers.size(), 2U) << toText(small);
}

} // namespace
} // namespace pumpgraph::test
