// SPDX-License-Identifier: Apache-2.0
// Whether the bound is sound is tested against exhaustive search in test/unit/check. Here: what it says of steps whose
// best time is known.
#include "passes/analysis/Bound.h"

#include "passes/analysis/Prediction.h"

#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

namespace pumpgraph {
namespace {

using test::smallMachine;
using test::smallPage;
using test::SmallStep;

double boundUs(const Description &step, std::uint64_t pages, BoundKind kind = BoundKind::May) {
  return bound(step, pages * smallPage, smallMachine(), kind).totalUs;
}

TEST(Bound, IsTheCriticalPathWhenEverythingFits) {
  SmallStep small;
  const BufferIndex a = small.local("a", 5);
  const NodeIndex k0 = small.alone("k0", 3, {small.write(a)}), k1 = small.alone("k1", 4, {small.read(a)});
  const NodeIndex side = small.alone("side", 5, {}), join = small.alone("join", 1, {});
  small.edge(k0, k1);
  small.edge(k1, join);
  small.edge(side, join);
  const Bound result = bound(small.step, 5 * smallPage, smallMachine(), BoundKind::May);
  EXPECT_DOUBLE_EQ(result.totalUs, 8);
  EXPECT_DOUBLE_EQ(result.inMemoryUs, 8);
  EXPECT_DOUBLE_EQ(result.computeUs, 8);
}

/// Forward writes four buffers of one page, backward reads them in reverse.
SmallStep stack(double kernelUs) {
  SmallStep small;
  std::vector<BufferIndex> buffers;
  for (int i = 0; i < 4; ++i)
    buffers.push_back(small.local("a", 10));
  for (int i = 0; i < 4; ++i)
    small.kernel("forward", kernelUs, {small.write(buffers[static_cast<std::size_t>(i)])});
  for (int i = 3; i >= 0; --i)
    small.kernel("backward", kernelUs, {small.read(buffers[static_cast<std::size_t>(i)])});
  return small;
}

TEST(Bound, AddsUpWhatMustLeaveAndWhatMustComeBack) {
  // 40 pages on 20: 20 must leave before the fourth buffer is written, and come back after it is read.
  const Bound result = bound(stack(1).step, 20 * smallPage, smallMachine(), BoundKind::May);
  EXPECT_GE(result.totalUs, 40);
  EXPECT_GT(result.upUs, 0);
  EXPECT_GT(result.downUs, 0);
  EXPECT_NEAR(result.computeUs + result.upUs + result.downUs + result.bothUs, result.totalUs, 1e-9);
}

// Up to 40 pages come up a replay, and up to 20 go down beside them, for each of which a third of one comes up less.
// The sum alone, 60 pages at one and a half, would allow 40 us.
TEST(Bound, OneDirectionLosesToTheOther) {
  SmallStep small;
  for (int i = 0; i < 5; ++i) {
    small.kernel("reads", 0, {small.read(small.live("a", 4))});
    small.kernel("updates", 0, {small.update(small.live("b", 4))});
  }
  EXPECT_GT(boundUs(small.step, 4), 41);
  EXPECT_LE(boundUs(small.step, 4), 40 + 20.0 / 3 + 1e-9);
}

TEST(Bound, DirectionsThatDoNotSeeEachOtherLoseNothing) {
  Machine machine = smallMachine();
  machine.bothBytesPerSecond = 3e9;
  EXPECT_DOUBLE_EQ(interference(machine), 0);
  machine.bothBytesPerSecond = 0.5e9; // less than one alone: they take turns
  EXPECT_DOUBLE_EQ(interference(machine), 1);
  machine.upBytesPerSecond = 3e9;
  machine.bothBytesPerSecond = 3.2e9;
  EXPECT_DOUBLE_EQ(interference(machine), 0.25);
}

// Of four operands of two pages in turn two always stay. Three that follow one another are always brought in two
// thirds: 4 us for three nodes. That four nodes are no multiple of three shows only over several replays.
TEST(Bound, LooksAtSeveralReplaysInARow) {
  SmallStep small;
  for (int i = 0; i < 4; ++i)
    small.kernel("reads", 0, {small.read(small.live("weight", 2))});
  EXPECT_GT(boundUs(small.step, 4), 5.2);
  EXPECT_LE(boundUs(small.step, 4), 16.0 / 3);
  EXPECT_DOUBLE_EQ(boundUs(small.step, 8), 0);
}

/// A weight makes way for `t`, twice, before it is written.
SmallStep makesWayTwice() {
  SmallStep small;
  const BufferIndex weight = small.live("weight", 2), t = small.local("t", 4);
  for (int i = 0; i < 2; ++i) {
    small.kernel("reads weight", 0, {small.read(weight)});
    small.kernel("writes t", 0, {small.write(t)});
  }
  small.kernel("updates weight", 0, {small.update(weight)});
  return small;
}

// With one copy it goes down and comes up each time.
TEST(Bound, OfManagedMemoryCountsWhatLeavesUnwritten) {
  const Description step = makesWayTwice().step;
  const auto boundFor = [&](Backend backend, const Description &of, BoundKind kind = BoundKind::May) {
    return bound(of, 4 * smallPage, smallMachine(), kind, backend).totalUs;
  };
  EXPECT_NEAR(boundFor(Backend::Managed, step), boundFor(Backend::Virtual, step) + 2, 1e-9) << "two pages down";
  EXPECT_DOUBLE_EQ(boundFor(Backend::Managed, step, BoundKind::Must), boundFor(Backend::Virtual, step, BoundKind::Must))
      << "a node may read from the host";
  // But what is only read is read mostly, and leaves for nothing.
  Description frozen = step;
  frozen.nodes.pop_back();
  frozen.edges.pop_back();
  EXPECT_DOUBLE_EQ(boundFor(Backend::Managed, frozen), boundFor(Backend::Virtual, frozen));
}

// Where nothing is known to be dead, `t` crosses the link as well.
TEST(Bound, OfManagedMemoryWithUnknownAccessesCountsTheDead) {
  const Description step = makesWayTwice().step;
  const auto boundFor = [&](Backend backend, std::uint64_t pages) {
    return bound(step, pages * smallPage, smallMachine(), BoundKind::May, backend).totalUs;
  };
  EXPECT_GE(boundFor(Backend::ManagedUnknown, 4), boundFor(Backend::Managed, 4) + 2 - 1e-9);
  EXPECT_DOUBLE_EQ(boundFor(Backend::ManagedUnknown, 6), 0) << "everything fits";
}

// What a node reads from host memory takes no room from others: where some node exceeds the budget, that it holds its
// operands cannot be counted on.
TEST(Bound, IsBelowAPlanThatHosts) {
  SmallStep small;
  const BufferIndex kept = small.live("kept", 4), wide = small.live("wide", 6);
  small.kernel("k0", 1, {small.read(kept)});
  small.kernel("k1", 1, {small.read(wide)});
  small.kernel("k2", 1, {small.read(kept)});
  Description plan = small.step;
  plan.buffers[kept].frames = {0, 1, 2, 3};
  plan.buffers[kept].resident = plan.buffers[kept].mirrored = {{0, 4 * smallPage}};
  plan.buffers[wide].frames.assign(6, noFrame);
  plan.buffers[wide].hosted = {{0, 6 * smallPage}};
  const double predictedUs = predict(plan, smallMachine()).totalUs;
  EXPECT_DOUBLE_EQ(predictedUs, 9);
  EXPECT_LE(boundUs(small.step, 4), predictedUs);
  EXPECT_GE(boundUs(small.step, 4), 6);
  // With room for k1 alone there are plans that host nothing, and the bound is theirs; of a plan that hosts it is not.
  EXPECT_GT(boundUs(small.step, 6), 6);
  EXPECT_LT(boundUs(plan, 6), boundUs(small.step, 6));
}

// k1 touches a page more than there is. In plans that host one page only, everything else makes way for the rest.
TEST(Bound, OfPlansThatHostFewBytesIsHigher) {
  SmallStep small;
  const BufferIndex kept = small.live("kept", 4), wide = small.live("wide", 5);
  small.kernel("k0", 1, {small.update(kept)});
  small.kernel("k1", 1, {small.update(wide)});
  const auto limitUs = [&](std::uint64_t pages, std::optional<std::uint64_t> hostedPages) {
    if (hostedPages)
      *hostedPages *= smallPage;
    return bound(small.step, pages * smallPage, smallMachine(), BoundKind::May, Backend::Virtual, hostedPages).totalUs;
  };
  const double any = limitUs(4, std::nullopt);
  EXPECT_LT(any, 7);
  EXPECT_GT(limitUs(4, 1), 12);
  EXPECT_LT(limitUs(4, 3), limitUs(4, 1));
  EXPECT_DOUBLE_EQ(limitUs(4, 100), any);
  // There are plans that host nothing; others are faster.
  EXPECT_DOUBLE_EQ(limitUs(5, 0), limitUs(5, std::nullopt));
  EXPECT_LT(limitUs(5, 1), limitUs(5, 0));
  EXPECT_GT(limitUs(5, 0), limitUs(4, 1));
  EXPECT_DOUBLE_EQ(limitUs(9, 0), 2);
}

TEST(Bound, CountsWhatAWideNodeMovesItself) {
  SmallStep small;
  const BufferIndex in = small.local("in", 3), out = small.local("out", 3);
  small.kernel("fill", 1, {small.write(in)});
  const NodeIndex wide = small.kernel("wide", 1, {small.read(in), small.write(out)});
  EXPECT_DOUBLE_EQ(boundUs(small.step, 6), 1 + 1);
  // Two pages too many: one is read and one is written, at once.
  EXPECT_DOUBLE_EQ(boundUs(small.step, 4), 1 + 2 / 1.5);
  EXPECT_DOUBLE_EQ(boundUs(small.step, 4, BoundKind::Must), 1 + 1);
  const Bound one = bound(small.step, smallPage, smallMachine(), BoundKind::May);
  EXPECT_DOUBLE_EQ(one.inMemoryUs, 1 + 1);
  EXPECT_GE(one.totalUs, 1 + 5 / 1.5);
  EXPECT_GE(bound(small.step, smallPage, smallMachine(), BoundKind::May, Backend::Managed).totalUs, 1 + 5 / 1.5);
  small.step.nodes[wide].costUs = 10;
  EXPECT_DOUBLE_EQ(boundUs(small.step, 4), 1 + 10) << "it may compute meanwhile";
}

// What was measured to take less time than copies of it does not cross the link in whole.
TEST(Bound, CountsOnlyWhatAWideNodeWasMeasuredToReach) {
  Machine machine = smallMachine();
  machine.hostedShare = 0.5;
  SmallStep small;
  const BufferIndex in = small.live("in", 4);
  const NodeIndex wide = small.kernel("wide", 1, {small.read(in), small.update(small.local("workspace", 2))});
  const auto planBoundUs = [&] { return bound(small.step, 2 * smallPage, machine, BoundKind::May).totalUs; };
  EXPECT_DOUBLE_EQ(planBoundUs(), 4);
  for (Access &access : small.step.nodes[wide].accesses)
    access.slowdown = 0.75F;
  EXPECT_DOUBLE_EQ(planBoundUs(), 4) << "no faster than copies";
  small.step.nodes[wide].accesses[0].slowdown = 0.375F;
  EXPECT_DOUBLE_EQ(planBoundUs(), 3) << "of all that it reaches, the least part counts";
  small.step.nodes[wide].accesses[1].slowdown = 0.125F;
  EXPECT_DOUBLE_EQ(planBoundUs(), 1) << "it computes meanwhile";
  // With room for all of it nothing needs to be hosted.
  EXPECT_DOUBLE_EQ(bound(small.step, 6 * smallPage, machine, BoundKind::May).totalUs, 1);
}

/// Four times a node that reads eight hosted pages in 8 us, and one that reads four pages that have come meanwhile.
Description readsHostedPagesBesideCopies(bool isPlanned) {
  SmallStep small;
  for (int i = 0; i < 4; ++i) {
    const BufferIndex hosted = small.live("hosted", 8), kept = small.live("kept", 4);
    Access access = small.read(hosted);
    access.slowdown = 0.5F;
    const NodeIndex wide = small.alone("wide", 0, {access});
    if (i > 0)
      small.edge(wide - 1, wide);
    const NodeIndex last = isPlanned ? small.residency(NodeKind::Prefetch, kept, 0, 4) : wide;
    if (isPlanned && i > 0)
      small.edge(wide - 1, last);
    const NodeIndex narrow = small.alone("narrow", 0, {small.read(kept)});
    small.edge(wide, narrow);
    if (!isPlanned)
      continue;
    small.edge(last, narrow);
    small.step.buffers[hosted].hosted = {{0, 8 * smallPage}};
    small.step.buffers[hosted].frames.assign(8, noFrame);
    small.step.buffers[kept].frames = {0, 1, 2, 3};
  }
  return small.step;
}

// Half of the link is a node's and half is the copies', so no more than all of it counts.
TEST(Bound, IsBelowAPlanThatCopiesBesideHostedOperands) {
  Machine machine = smallMachine();
  machine.hostedShare = machine.besideHostedShare = 0.5;
  EXPECT_DOUBLE_EQ(predict(readsHostedPagesBesideCopies(true), machine).totalUs, 4 * 8);
  for (const BoundKind kind : {BoundKind::Must, BoundKind::May}) {
    const double us = bound(readsHostedPagesBesideCopies(false), 4 * smallPage, machine, kind).totalUs;
    EXPECT_LE(us, 4 * 8);
    EXPECT_GE(us, 4 * (4 + 4) - 4);
  }
}

TEST(Bound, OfAWideNodeOneWayIsCheaperThanBoth) {
  SmallStep small;
  small.kernel("wide", 1, {small.update(small.local("updated", 4)), small.read(small.live("read", 2))});
  EXPECT_DOUBLE_EQ(boundUs(small.step, 4), 2);
  EXPECT_DOUBLE_EQ(boundUs(small.step, 3), 3 + 1 / 3.0);
}

TEST(Bound, TransfersHiddenByComputeDoNotCount) {
  EXPECT_DOUBLE_EQ(boundUs(stack(100).step, 20), 800);
}

TEST(Bound, FallsAsTheBudgetGrows) {
  double before = std::numeric_limits<double>::infinity();
  for (std::uint64_t pages : {10, 15, 20, 30, 40}) {
    const double us = boundUs(stack(1).step, pages);
    EXPECT_LE(us, before);
    before = us;
  }
  EXPECT_DOUBLE_EQ(before, 8);
}

TEST(Bound, ExclusivePagesAreNotThere) {
  SmallStep small = stack(1);
  const double without = boundUs(small.step, 20);
  small.exclusive("x", 5);
  EXPECT_DOUBLE_EQ(boundUs(small.step, 25), without);
  EXPECT_GT(boundUs(small.step, 20), without);
}

TEST(Bound, MustBelievesOnlyWhatIsCertain) {
  SmallStep small;
  std::vector<BufferIndex> buffers;
  for (int i = 0; i < 3; ++i)
    buffers.push_back(small.live("b", 10));
  for (BufferIndex b : buffers)
    small.kernel("k", 1, {small.mayUse(b)});
  EXPECT_DOUBLE_EQ(boundUs(small.step, 10, BoundKind::Must), 3);
  EXPECT_GT(boundUs(small.step, 10, BoundKind::May), 3);
}

TEST(Bound, AValueThatNobodyWroteNeedNotCome) {
  SmallStep small;
  for (int i = 0; i < 3; ++i)
    small.kernel("k", 1, {small.read(small.local("garbage", 10))});
  EXPECT_DOUBLE_EQ(boundUs(small.step, 10), 3);
}

TEST(Bound, AReplayBeginsWhereTheLastOneEnded) {
  // The first half uses a, the second b; both live, one fits. Each replay must exchange them twice, and a window from
  // the middle of one replay to the middle of the next sees it.
  SmallStep small;
  const BufferIndex a = small.live("a", 10), b = small.live("b", 10);
  small.kernel("a", 1, {small.update(a)});
  small.kernel("b", 1, {small.update(b)});
  // While one of them runs nothing moves. Between them 10 pages go each way, and a third of the time of one direction
  // is lost to the other. Sixteen replays in a row are looked at, of which the first begins with nothing to do.
  const double us = 2 * (1 + 10 + 10.0 / 3);
  EXPECT_LE(boundUs(small.step, 10), us + 1e-9);
  EXPECT_GT(boundUs(small.step, 10), us * 0.99);
}

TEST(Bound, WhatANodeUsesComesBeforeItAndLeavesAfterIt) {
  // An optimizer updates all of its state at once. Half of that makes way for what is computed next and comes back
  // after it, 10 us each, and nothing of it moves meanwhile.
  SmallStep small;
  const BufferIndex state = small.live("state", 20), activation = small.local("activation", 10);
  small.kernel("forward", 1, {small.write(activation)});
  small.kernel("backward", 2, {small.read(activation)});
  small.kernel("optimizer", 4, {small.update(state)});
  EXPECT_NEAR(boundUs(small.step, 20), 10 + 1 + 2 + 10 + 4, 1e-9);
  EXPECT_NEAR(boundUs(small.step, 30), 7, 1e-9);
}

TEST(Bound, WhatTheLastNodeUsesIsInTheWay) {
  // All that must be kept fits, but not beside the 10 pages that node "wide" writes.
  SmallStep small;
  const BufferIndex a = small.local("a", 10), wide = small.local("wide", 10);
  small.kernel("write", 1, {small.write(a)});
  small.kernel("wide", 1, {small.write(wide)});
  small.kernel("read", 1, {small.read(a)});
  EXPECT_GE(boundUs(small.step, 15), 10);
}

TEST(Bound, ProgrammaticEdgesCountLikeFullOnes) {
  SmallStep small;
  const NodeIndex a = small.alone("a", 3, {}), b = small.alone("b", 4, {});
  small.edge(a, b, EdgeKind::Programmatic);
  EXPECT_DOUBLE_EQ(boundUs(small.step, 1), 7);
}

TEST(Bound, IgnoresWhatAPlanAdded) {
  SmallStep small = stack(1);
  const double captured = boundUs(small.step, 20);
  const NodeIndex evict = small.residency(NodeKind::Evict, 0, 0, 10);
  small.edge(0, evict);
  EXPECT_DOUBLE_EQ(boundUs(small.step, 20), captured);
}

TEST(Bound, AnEmptyStepTakesNoTime) {
  EXPECT_DOUBLE_EQ(boundUs(SmallStep().step, 1), 0);
}

TEST(Bound, ManyNodesTakeMilliseconds) {
  SmallStep small;
  for (int i = 0; i < 10'000; ++i)
    small.kernel("k", 1, {small.write(small.local("b", 3))});
  const auto begin = std::chrono::steady_clock::now();
  const double us = boundUs(small.step, 30);
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
  std::printf("10000 nodes bounded in %.1f ms\n", ms.count());
  EXPECT_DOUBLE_EQ(us, 10'000);
}

} // namespace
} // namespace pumpgraph
