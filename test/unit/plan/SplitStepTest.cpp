// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/SplitStep.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Prediction.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/PlanResidency.h"
#include "passes/plan/search/SplitCandidates.h"
#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace pumpgraph {
namespace {

using test::smallMachine;
using test::smallPage;
using test::SmallStep;

Range pages(std::uint64_t first, std::uint64_t count) {
  return {first * smallPage, count * smallPage};
}

/// A node after the one before it, which it may overlap.
void overlapLast(SmallStep &small) {
  small.step.edges.back().kind = EdgeKind::Programmatic;
}

/// Writes a, and reads it three times.
SmallStep fourNodes() {
  SmallStep small;
  const BufferIndex a = small.local("a", 5);
  small.kernel("write", 10, {small.write(a)});
  for (const char *name : {"first", "second", "third"})
    small.kernel(name, 10, {small.read(a)});
  small.step.buffers[a].isRenamable = true;
  return small;
}

/// The plan of the parts in which every page has a frame of its own.
Description withAllFrames(Description parts) {
  std::int32_t frame = 0;
  for (Buffer &buffer : parts.buffers)
    for (std::uint64_t page = 0; page * smallPage < buffer.size; ++page)
      buffer.frames.push_back(frame++);
  parts.budgetBytes = static_cast<std::uint64_t>(frame) * smallPage;
  return parts;
}

TEST(SplitStep, CutsABufferWhereSomeOfItMoves) {
  const Description step = fourNodes().step;
  const SplitStep split(step, {{0, 2, {pages(1, 2)}}});
  const Description &parts = split.parts();
  ASSERT_EQ(parts.buffers.size(), 4U); // page 0; pages 1 and 2 at both addresses; the rest
  EXPECT_EQ(parts.buffers[0].size, smallPage);
  EXPECT_EQ(parts.buffers[1].size, 2 * smallPage);
  EXPECT_EQ(parts.buffers[2].continues, 1U);
  EXPECT_EQ(parts.buffers[3].size, 2 * smallPage);
  const auto partsAt = [&](NodeIndex node) {
    std::vector<BufferIndex> buffers;
    for (const Access &access : parts.nodes[node].accesses)
      buffers.push_back(access.buffer);
    return buffers;
  };
  EXPECT_EQ(partsAt(1), (std::vector<BufferIndex>{0, 1, 3}));
  EXPECT_EQ(partsAt(2), (std::vector<BufferIndex>{0, 2, 3}));
}

TEST(SplitStep, JoinsWhatStaysInItsFrames) {
  const Description step = fourNodes().step;
  const SplitStep split(step, {{0, 2, {pages(1, 2)}}, {0, 3, {pages(0, 2)}}});
  Description planned = withAllFrames(split.parts());
  Node evict;
  evict.kind = NodeKind::Evict;
  evict.buffer = 6; // page 2 at its second address
  evict.range = pages(0, 1);
  ASSERT_EQ(planned.buffers[6].size, smallPage);
  planned.nodes.push_back(evict);
  const Description joined = split.join(planned);
  ASSERT_EQ(joined.buffers.size(), 3U);
  EXPECT_EQ(joined.buffers[1].continues, 0U);
  EXPECT_EQ(joined.buffers[2].continues, 1U);
  for (const Buffer &buffer : joined.buffers)
    EXPECT_EQ(buffer.size, 5 * smallPage);
  const auto frame = [&](BufferIndex buffer, std::size_t page) { return joined.buffers[buffer].frames[page]; };
  EXPECT_EQ(frame(1, 0), frame(0, 0));
  EXPECT_NE(frame(1, 1), frame(0, 1));
  EXPECT_NE(frame(1, 2), frame(0, 2));
  EXPECT_EQ(frame(1, 3), frame(0, 3));
  EXPECT_NE(frame(2, 0), frame(1, 0));
  EXPECT_NE(frame(2, 1), frame(1, 1));
  EXPECT_EQ(frame(2, 2), frame(1, 2));
  EXPECT_EQ(frame(2, 4), frame(0, 4));
  for (NodeIndex node = 0; node < 4; ++node) {
    EXPECT_EQ(joined.nodes[node].accesses[0].buffer, node < 2 ? 0 : node - 1);
    EXPECT_EQ(joined.nodes[node].accesses[0].range, step.nodes[node].accesses[0].range);
  }
  EXPECT_EQ(joined.nodes[4].buffer, 1U) << "where the part is first";
  EXPECT_EQ(joined.nodes[4].range, pages(2, 1));
}

TEST(SplitStep, OrdersWhatStaysByCompletion) {
  SmallStep small;
  const BufferIndex a = small.local("a", 2);
  small.kernel("write", 10, {small.write(a)});
  small.kernel("between", 10, {});
  overlapLast(small);
  small.kernel("read", 10, {small.read(a)});
  const SplitStep split(small.step, {{a, 2, {pages(0, 1)}}});
  const Description joined = split.join(withAllFrames(split.parts()));
  const Edge full{0, 2, EdgeKind::Full};
  EXPECT_EQ(std::count(joined.edges.begin(), joined.edges.end(), full), 1);
  small.step.edges.front().kind = EdgeKind::Full;
  const SplitStep ordered(small.step, {{a, 2, {pages(0, 1)}}});
  EXPECT_EQ(ordered.join(withAllFrames(ordered.parts())).edges.size(), small.step.edges.size());
}

TEST(SplitStep, PlacesPartsAsAPlanWithFewerSplits) {
  SmallStep small = fourNodes();
  const BufferIndex w = small.live("w", 2);
  small.step.nodes[3].accesses.push_back(small.read(w));
  const Split first{0, 2, {pages(1, 2)}};
  const SplitStep fewer(small.step, {first});
  Description planned = withAllFrames(fewer.parts());
  planned.buffers[0].hosted = {pages(0, 1)};
  planned.buffers[0].frames[0] = noFrame;
  planned.buffers[w].resident = {pages(0, 2)};
  planned.buffers[w].mirrored = {pages(1, 1)};
  const Description plan = fewer.join(planned);
  const SplitStep more(small.step, {first, {0, 3, {pages(2, 2)}}});
  const Description placed = more.inParts(plan);
  ASSERT_EQ(placed.buffers.size(), more.parts().buffers.size());
  EXPECT_EQ(placed.buffers[w].frames, plan.buffers[w].frames);
  EXPECT_EQ(placed.buffers[w].resident, plan.buffers[w].resident);
  EXPECT_EQ(placed.buffers[w].mirrored, plan.buffers[w].mirrored);
  EXPECT_EQ(placed.buffers[0].hosted, std::vector<Range>{pages(0, 1)});
  for (NodeIndex node = 0; node < 4; ++node) { // the frames of the buffer, part by part, are those that the node had
    std::vector<std::int32_t> frames;
    for (const Access &access : placed.nodes[node].accesses)
      if (access.buffer != w)
        frames.insert(frames.end(), placed.buffers[access.buffer].frames.begin(),
                      placed.buffers[access.buffer].frames.end());
    EXPECT_EQ(frames, plan.buffers[plan.nodes[node].accesses[0].buffer].frames) << "node " << node;
  }
}

TEST(SplitStep, SplitsOfPartsAreThoseOfTheWhole) {
  const Description step = fourNodes().step;
  const SplitStep split(step, {{0, 2, {pages(1, 2)}}});
  const std::vector<Split> joined = split.join({{2, 3, {pages(1, 1)}}, {3, 1, {pages(0, 2)}}});
  ASSERT_EQ(joined.size(), 2U);
  EXPECT_EQ(joined[0].buffer, 0U);
  EXPECT_EQ(joined[0].moved, std::vector<Range>{pages(2, 1)});
  EXPECT_EQ(joined[0].until, 3U);
  EXPECT_EQ(joined[1].moved, std::vector<Range>{pages(3, 2)});
}

TEST(SplitCandidates, AreJoinedByBufferAndNode) {
  SmallStep small = fourNodes();
  const BufferIndex fixed = small.local("fixed", 2);
  const std::vector<Split> splits{{0, 2, {pages(1, 2)}}};
  const std::vector<Split> more =
      joinedSplits(small.step, splits,
                   {{0, 2, {pages(2, 2)}}, {0, 3, {{0, smallPage / 2}, pages(4, 1)}}, {fixed, 3, {pages(0, 2)}}});
  EXPECT_EQ(more, (std::vector<Split>{{0, 2, {pages(1, 3)}}, {0, 3, {pages(0, 1), pages(4, 1)}}}));
  EXPECT_EQ(joinedSplits(small.step, splits, {}), splits);
}

TEST(SplitCandidates, DoubtsWhatANodeReachesBeyondWhatItDid) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4);
  small.kernel("write", 1, {small.write(a), small.write(b)});
  small.kernel("read", 1, {small.read(a), small.read(b)});
  const auto hosting = [&](BufferIndex buffer, std::uint64_t count) {
    Description step = small.step;
    step.buffers[buffer].hosted = {pages(0, count)};
    return step;
  };
  EXPECT_EQ(doubtUs(hosting(b, 2), hosting(a, 2), smallMachine()), 0) << "another operand of the same nodes";
  EXPECT_EQ(doubtUs(hosting(b, 4), hosting(a, 2), smallMachine()), 2) << "half of two pages down, and of two up";
}

/// Like the backward pass of an early stage: "last" touches two pages more than there are frames for. It is cheapest to
/// host some of b, which is written just before; a is used before, and c afterwards.
SmallStep wideAtTheEnd() {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4), c = small.local("c", 4);
  small.kernel("a", 1, {small.write(a)});
  small.kernel("long", 100, {});
  small.kernel("write", 2, {small.write(b)});
  small.kernel("between", 4, {small.read(a)});
  small.kernel("last", 2, {small.read(a), small.read(b), small.write(c)});
  for (int i = 0; i < 3; ++i)
    small.kernel("c", 2, {small.update(c)});
  for (Buffer &buffer : small.step.buffers)
    buffer.isRenamable = true;
  return small;
}

TEST(PlanResidency, HostsWhatItMustForOneNodeAlone) {
  const SmallStep small = wideAtTheEnd();
  PlanOptions options;
  options.budgetBytes = 10 * smallPage;
  options.machine = smallMachine();
  options.machine.hostedShare = 0.5; // copies are faster
  const tl::expected<PlannedStep, PlanError> planned = planResidency(small.step, options);
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_TRUE(checkResidency(planned->description).empty());
  EXPECT_TRUE(checkPreserves(small.step, planned->description).empty());
  EXPECT_TRUE(checkResidency(lowerVirtual(planned->description)).empty());
  EXPECT_EQ(hostedBytes(planned->description), 2 * smallPage);
  EXPECT_EQ(planned->description.buffers[3].continues, 1U);
  for (const auto &[node, traffic] : hostedReach(planned->description))
    EXPECT_EQ(node, 4U) << "node 4 alone reaches hosted pages";
}

/// A weight that the first node and the last use, and a gradient that is written in between and used with it in the
/// end: as long as it has one address it cannot have the weight's frames. In others it drives away an activation that
/// could stay. It is not idle for long enough to be renamed for that alone.
SmallStep gradientOfAWeight() {
  SmallStep small;
  const BufferIndex weight = small.live("weight", 4), activation = small.local("activation", 4),
                    gradient = small.local("gradient", 4), wide = small.local("wide", 8);
  small.kernel("elsewhere", 500, {});
  small.kernel("activation", 4, {small.write(activation)});
  small.kernel("forward", 4, {small.read(weight)});
  small.kernel("gradient", 4, {small.write(gradient)});
  small.kernel("backward", 4, {small.read(activation)});
  small.kernel("wide", 20, {small.write(wide)});
  small.kernel("wide", 4, {small.read(wide)});
  small.kernel("optimizer", 4, {small.update(weight), small.read(gradient)});
  small.step.buffers[gradient].isRenamable = small.step.buffers[activation].isRenamable = true;
  return small;
}

TEST(PlanResidency, WhatLeavesComesBackElsewhere) {
  SmallStep small = gradientOfAWeight();
  PlanOptions options;
  options.budgetBytes = 8 * smallPage;
  options.machine = smallMachine();
  const tl::expected<PlannedStep, PlanError> planned = planResidency(small.step, options);
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_TRUE(checkResidency(planned->description).empty());
  EXPECT_TRUE(checkPreserves(small.step, planned->description).empty());
  for (Buffer &buffer : small.step.buffers)
    buffer.isRenamable = false;
  const tl::expected<PlannedStep, PlanError> without = planResidency(small.step, options);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(planned->stats.upBytes + 4 * smallPage, without->stats.upBytes);
  EXPECT_EQ(planned->stats.downBytes + 4 * smallPage, without->stats.downBytes);
}

} // namespace
} // namespace pumpgraph
