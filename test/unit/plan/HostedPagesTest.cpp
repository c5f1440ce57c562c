// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/price/HostedPages.h"

#include "passes/analysis/Bound.h"
#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Prediction.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/PlanResidency.h"
#include "test/unit/analysis/SmallStep.h"
#include "test/unit/plan/PairwiseStep.h"
#include "test/unit/plan/RegularStep.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

using test::smallMachine;
using test::smallPage;
using test::SmallStep;

/// Pages hosted of each buffer when every node is to do with so many frames.
std::vector<std::uint64_t> hosted(const SmallStep &small, std::uint64_t frames) {
  Description step = small.step;
  const Timeline timeline(step);
  hostExcess(step, timeline, wideNodes(timeline, frames), hostingPrices(timeline, frames, smallMachine()));
  std::vector<std::uint64_t> pages;
  for (const Buffer &buffer : step.buffers)
    pages.push_back((hostedBytesOf(buffer) + smallPage - 1) / smallPage);
  return pages;
}

using Pages = std::vector<std::uint64_t>;

TEST(HostExcess, TakesNoMoreThanTheExcessAndTheCheapestOfIt) {
  SmallStep small;
  const BufferIndex hot = small.live("hot", 4), cold = small.live("cold", 4);
  small.kernel("wide", 1, {small.read(hot), small.read(cold)});
  small.kernel("again", 1, {small.read(hot)});
  EXPECT_EQ(hosted(small, 8), (Pages{0, 0}));
  EXPECT_EQ(hosted(small, 7), (Pages{0, 1}));
  EXPECT_EQ(hosted(small, 3), (Pages{1, 4}));
  EXPECT_EQ(hosted(small, 0), (Pages{4, 4}));
}

TEST(HostExcess, AWriteCostsAsMuchAsARead) {
  SmallStep small;
  const BufferIndex updated = small.live("updated", 2), read = small.live("read", 2);
  small.kernel("wide", 1, {small.update(updated), small.read(read)});
  EXPECT_EQ(hosted(small, 3), (Pages{0, 1}));
}

// What was measured to be slow to read over the link is left on the device.
TEST(HostExcess, ASlowAccessCostsMore) {
  SmallStep small;
  const BufferIndex slow = small.live("slow", 4), fast = small.live("fast", 4);
  const NodeIndex wide = small.kernel("wide", 1, {small.read(slow), small.read(fast)});
  small.kernel("again", 1, {small.read(fast)});
  EXPECT_EQ(hosted(small, 6), (Pages{2, 0}));
  small.step.nodes[wide].accesses[0].slowdown = 3;
  EXPECT_EQ(hosted(small, 6), (Pages{0, 2}));
  small.step.nodes[wide].accesses[1].slowdown = 3;
  EXPECT_EQ(hosted(small, 6), (Pages{2, 0}));
}

// A page of what two wide nodes share serves both.
TEST(HostExcess, CountsWhomAPageServes) {
  SmallStep small;
  const BufferIndex shared = small.live("shared", 2), a = small.local("a", 2), b = small.local("b", 2);
  small.kernel("first", 1, {small.read(shared), small.write(a)});
  small.kernel("second", 1, {small.read(shared), small.write(b)});
  EXPECT_EQ(hosted(small, 3), (Pages{1, 0, 0}));
}

// Used alike, but one of them has to leave in between.
TEST(HostExcess, APageThatWouldHaveToMoveIsCheaper) {
  SmallStep small;
  const BufferIndex stays = small.local("stays", 4), leaves = small.local("leaves", 4);
  const BufferIndex other = small.local("other", 7);
  small.kernel("early", 1, {small.write(leaves)});
  small.kernel("between", 1, {small.write(other)});
  small.kernel("late", 1, {small.write(stays)});
  small.kernel("wide", 1, {small.read(stays), small.read(leaves)});
  EXPECT_EQ(hosted(small, 7), (Pages{0, 1, 0}));
}

// What was taken for the first node alone is not needed any more once the second has what it needs.
TEST(HostExcess, GivesBackWhatHasBecomeSuperfluous) {
  SmallStep small;
  const BufferIndex cheap = small.live("cheap", 1), shared = small.live("shared", 3), big = small.local("big", 3);
  small.kernel("first", 1, {small.read(cheap), small.update(shared)});
  small.kernel("second", 1, {small.update(shared), small.write(big)});
  small.kernel("third", 1, {small.read(big), small.update(big), small.mayUse(big)});
  for (int i = 0; i < 4; ++i)
    small.kernel("big", 1, {small.update(big)});
  EXPECT_EQ(hosted(small, 3), (Pages{0, 3, 0}));
}

TEST(HostExcess, APartialLastPageIsTheCheapest) {
  SmallStep small;
  const BufferIndex whole = small.live("whole", 3), partial = small.live("partial", 3);
  small.step.buffers[partial].size -= 900;
  small.kernel("wide", 1, {small.read(whole), small.read(partial)});
  Description step = small.step;
  hostExcess(step, Timeline(step), 5, smallMachine());
  EXPECT_EQ(step.buffers[partial].hosted, (std::vector<Range>{{2 * smallPage, 100}}));
}

// Four pages too many in a node that reads one buffer and writes another.
TEST(HostExcess, WhatANodeReadsIsCheapBesideWhatItWrites) {
  SmallStep small;
  const BufferIndex in = small.live("in", 8), out = small.local("out", 8);
  small.kernel("wide", 1, {small.read(in), small.write(out)});
  EXPECT_EQ(hosted(small, 12), (Pages{2, 2}));
  small.kernel("after", 1, {small.read(out), small.read(in)});
  small.kernel("again", 1, {small.read(out)});
  EXPECT_EQ(hosted(small, 12), (Pages{4, 0})) << "the other one is read too often";
}

TEST(LeastHosted, IsWhatNodesHaveTooMuchOf) {
  SmallStep small;
  const BufferIndex shared = small.live("shared", 3), one = small.live("one", 4), other = small.local("other", 5);
  small.step.buffers[small.live("own", 2)].isPrivate = false;
  small.kernel("fits", 1, {small.update(one)});
  small.kernel("first", 1, {small.read(shared), small.read(one)});
  small.kernel("second", 1, {small.read(shared), small.write(other)});
  const auto least = [&](std::uint64_t pages) { return leastHostedBytes(small.step, pages * smallPage) / smallPage; };
  EXPECT_EQ(least(10), 0U) << "two pages are those of what is no private buffer";
  EXPECT_EQ(least(9), 1U);
  EXPECT_EQ(least(8), 2U) << "both nodes touch two of the same pages";
  EXPECT_EQ(least(6), 4U) << "three for both, one more for the second";
  small.step.buffers[other].hosted = {{0, 2 * smallPage}};
  EXPECT_EQ(least(8), 3U) << "what the second does not need to host is hosted all the same";
}

TEST(HostExcess, LeavesOperandsOfCopiesAndChildGraphsAlone) {
  for (const NodeKind kind : {NodeKind::Memcpy, NodeKind::ChildGraph}) {
    SmallStep small;
    const BufferIndex source = small.live("source", 3), other = small.live("other", 3);
    small.step.nodes[small.kernel("copy", 1, {small.read(source)})].kind = kind;
    small.kernel("wide", 1, {small.read(source), small.read(other)});
    small.kernel("again", 1, {small.read(other)});
    EXPECT_EQ(hosted(small, 4), (Pages{0, 2}));
    EXPECT_EQ(hosted(small, 2), (Pages{0, 3})) << "all that can be";
  }
}

TEST(PlanHosting, ACopyAboveTheBudgetIsRefusedWithNumbers) {
  SmallStep small;
  const BufferIndex source = small.live("source", 3), target = small.live("target", 3);
  small.step.nodes[small.kernel("copy", 1, {small.read(source), small.write(target)})].kind = NodeKind::Memcpy;
  const tl::expected<PlannedStep, PlanError> plan = planResidency(small.step, {4 * smallPage, smallMachine()});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().node, 0u);
  EXPECT_NE(plan.error().message.find("\"copy\" needs "), std::string::npos) << plan.error().message;
  EXPECT_NE(plan.error().message.find("operands of copies"), std::string::npos) << plan.error().message;
}

PlannedStep planned(const SmallStep &small, std::uint64_t frames) {
  const tl::expected<PlannedStep, PlanError> plan = planResidency(small.step, {frames * smallPage, smallMachine()});
  EXPECT_TRUE(plan) << plan.error().message;
  if (!plan)
    return {};
  for (const Description &step : {plan->description, lowerVirtual(plan->description)}) {
    for (const Violation &violation : checkResidency(step))
      ADD_FAILURE() << violation.message;
    for (const Violation &violation : checkPreserves(small.step, step))
      ADD_FAILURE() << violation.message;
  }
  return *plan;
}

TEST(PlanHosting, ANodeAboveTheBudgetReachesItsExcessInHostMemory) {
  SmallStep small;
  const BufferIndex weight = small.live("weight", 4), a = small.local("a", 4);
  small.kernel("forward", 10, {small.read(weight), small.write(a)});
  small.kernel("backward", 10, {small.read(a), small.update(weight)});
  const PlannedStep plan = planned(small, 6);
  // One page of each: the second node writes one while it reads two, and so does the first with one.
  EXPECT_EQ(plan.description.buffers[a].hosted, (std::vector<Range>{{0, smallPage}}));
  EXPECT_EQ(plan.description.buffers[weight].hosted, (std::vector<Range>{{0, smallPage}}));
  EXPECT_EQ(plan.stats.framesUsed, 6u);
  EXPECT_EQ(plan.stats.hostBytes, 2 * smallPage);
  EXPECT_EQ(plan.stats.peakPagesBefore, 8u);
  // Nothing moves but what the nodes move themselves, and their own costs stay what they were.
  EXPECT_EQ(plan.description.nodes.size(), 2u);
  EXPECT_DOUBLE_EQ(plan.description.nodes[0].costUs, 10);
  EXPECT_DOUBLE_EQ(predict(plan.description, smallMachine()).totalUs, 20 + 2 / 1.5 + 2 + 1 / 3.0);
}

/// Buffer 0 is written before another one of its size, and read after that.
SmallStep stepAroundAnother() {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4);
  small.kernel("k0", 1, {small.write(a)});
  small.kernel("k1", 1, {small.write(b)});
  small.kernel("k2", 1, {small.read(a)});
  return small;
}

TEST(PlanHosting, NothingIsHostedWhereTransfersDo) {
  const SmallStep small = stepAroundAnother();
  EXPECT_EQ(hostedBytes(planned(small, 4).description), 0u);
  EXPECT_GT(hostedBytes(planned(small, 3).description), 0u);
}

// What is hosted by choice stays so, and what finds no room is hosted beside it.
TEST(PlanHosting, StaysWhereTheOptionsSay) {
  SmallStep small;
  const BufferIndex weight = small.live("weight", 4), a = small.local("a", 4), b = small.local("b", 4);
  small.kernel("forward", 10, {small.read(weight), small.write(a), small.write(b)});
  small.kernel("backward", 10, {small.read(a), small.read(b), small.update(weight)});
  for (const std::uint64_t frames : {8, 6}) {
    PlanOptions options{frames * smallPage, smallMachine()};
    options.hosted = {{a, {0, 4 * smallPage}}};
    const tl::expected<PlannedStep, PlanError> plan = planResidency(small.step, options);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_TRUE(checkResidency(plan->description).empty());
    EXPECT_EQ(plan->description.buffers[a].hosted, (std::vector<Range>{{0, 4 * smallPage}}));
    EXPECT_EQ(hostedBytes(plan->description), (4 + 8 - frames) * smallPage);
    EXPECT_EQ(plan->description.nodes.size(), 2u) << "nothing has to move";
  }
}

// A part of a buffer stays where it is said to, the rest of it moves like any other.
TEST(PlanHosting, PartsStayWhereTheOptionsSay) {
  const SmallStep small = stepAroundAnother();
  for (const std::uint64_t frames : {4, 3}) {
    PlanOptions options{frames * smallPage, smallMachine()};
    options.hosted = {{0, {smallPage, 2 * smallPage}}};
    const tl::expected<PlannedStep, PlanError> plan = planResidency(small.step, options);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_TRUE(checkResidency(plan->description).empty());
    const Buffer &of = plan->description.buffers[0];
    EXPECT_TRUE(covers(of.hosted, options.hosted.front().range));
    EXPECT_GT(plan->stats.evictions, 0u) << "the rest of it leaves for the other buffer";
    EXPECT_EQ(hostedBytes(plan->description), (2 + (frames == 4 ? 0 : 1)) * smallPage);
    for (std::uint64_t page = 0; page < 4; ++page)
      EXPECT_EQ(of.frames[page] == noFrame, overlaps(of.hosted, {page * smallPage, 1})) << page;
  }
}

// A page keeps its frame: three buffers that are used two at a time need three frames. One of them is hosted.
TEST(PlanHosting, IsTheLastResortWhenPagesFindNoFrames) {
  const SmallStep small = test::pairwiseStep(1);
  EXPECT_EQ(hostedBytes(planned(small, 3).description), 0u);
  const std::uint64_t bytes = hostedBytes(planned(small, 2).description);
  EXPECT_GE(bytes, smallPage);
  EXPECT_LE(bytes, 2 * smallPage);
}

TEST(PlanHosting, NoFrameAtAllIsEnoughForPrivateBuffers) {
  SmallStep small;
  const BufferIndex output = small.exclusive("output", 2), a = small.local("a", 3);
  small.kernel("k0", 1, {small.write(a)});
  small.kernel("k1", 1, {small.read(a), small.write(output)});
  EXPECT_EQ(hostedBytes(planned(small, 2).description), 3 * smallPage);
  const auto tooSmall = planResidency(small.step, {smallPage, smallMachine()});
  ASSERT_FALSE(tooSmall);
  EXPECT_EQ(tooSmall.error().message,
            "exclusive buffers need 2.0 KiB on the device at all times; the budget is 1000 B");
}

TEST(PlanHosting, HostMemoryThatIsTooSmallIsRefusedWithNumbers) {
  SmallStep small;
  const BufferIndex a = small.local("a", 3);
  small.exclusive("x", 1);
  small.kernel("small", 1, {});
  small.kernel("gemm", 1, {small.mayUse(a)});
  PlanOptions options{2 * smallPage, smallMachine()};
  options.machine.hostBytes = smallPage;
  const auto plan = planResidency(small.step, options);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().node, NodeIndex{1});
  EXPECT_EQ(plan.error().message,
            "node 1 \"gemm\" needs 3.9 KiB on the device at once (1000 B of it exclusive buffers); the budget is 2.0 "
            "KiB, and with 2.0 KiB of operands always in host memory the plan needs 2.0 KiB of host memory; 1000 B may "
            "be used, 1000 B are missing");
  options.machine.hostBytes = 2 * smallPage;
  EXPECT_TRUE(planResidency(small.step, options));
}

TEST(PlanHosting, ARegularStepGetsSlowerAsTheBudgetShrinks) {
  const Description step = test::regularStep({});
  const Machine machine;
  std::uint64_t widest = 0;
  const Timeline timeline(step);
  for (NodeIndex node = 0; node < timeline.nodeCount(); ++node)
    widest = std::max(widest, timeline.workingSetPages(node));
  double before = 0;
  for (const std::uint64_t frames : {widest, widest / 2, widest / 4, std::uint64_t{1}}) {
    const std::uint64_t budgetBytes = frames * step.pageBytes;
    const auto plan = planResidency(step, {budgetBytes, machine});
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_TRUE(checkResidency(plan->description).empty());
    const Prediction prediction = predict(plan->description, machine);
    EXPECT_LE(prediction.peakBytes, budgetBytes);
    EXPECT_GE(prediction.totalUs, before);
    EXPECT_GE(prediction.totalUs, bound(plan->description, budgetBytes, machine, BoundKind::May).totalUs * (1 - 1e-9));
    before = prediction.totalUs;
  }
}

} // namespace
} // namespace pumpgraph
