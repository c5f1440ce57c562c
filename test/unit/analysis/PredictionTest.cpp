// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Prediction.h"

#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>

namespace pumpgraph {
namespace {

using test::smallMachine;
using test::smallPage;
using test::SmallStep;

TEST(Prediction, KernelsStartWhenTheirDependenciesEnd) {
  SmallStep small;
  small.kernel("a", 3, {});
  small.kernel("b", 4, {});
  const Prediction prediction = predict(small.step, smallMachine());
  EXPECT_DOUBLE_EQ(prediction.totalUs, 7);
  EXPECT_DOUBLE_EQ(prediction.nodes[1].startUs, 3);
  EXPECT_TRUE(prediction.stalls.empty());
}

TEST(Prediction, UnknownCostsCountAsNothing) {
  SmallStep small;
  small.kernel("a", std::numeric_limits<double>::quiet_NaN(), {});
  small.kernel("b", 4, {});
  EXPECT_DOUBLE_EQ(predict(small.step, smallMachine()).totalUs, 4);
}

TEST(Prediction, ACopyTakesItsOverheadAndItsBytes) {
  SmallStep small;
  const BufferIndex b = small.local("b", 6);
  small.residency(NodeKind::Evict, b, 0, 6);
  Machine machine = smallMachine();
  machine.copyOverheadUs = 2;
  const Prediction prediction = predict(small.step, machine);
  EXPECT_DOUBLE_EQ(prediction.totalUs, 8);
  EXPECT_DOUBLE_EQ(prediction.downBusyUs, 8);
  EXPECT_EQ(prediction.downBytes, 6 * smallPage);
}

TEST(Prediction, CopiesOfOneDirectionRunOneAfterTheOther) {
  SmallStep small;
  const BufferIndex b = small.local("b", 6);
  small.residency(NodeKind::Evict, b, 0, 3);
  small.residency(NodeKind::Evict, b, 3, 3);
  EXPECT_DOUBLE_EQ(predict(small.step, smallMachine()).totalUs, 6);
}

TEST(Prediction, WhatGoesToTheHostSideBySideSharesTheBandwidthButNotTheOverhead) {
  SmallStep small;
  const BufferIndex b = small.local("b", 7);
  const NodeIndex first = small.residency(NodeKind::Evict, b, 0, 3), second = small.residency(NodeKind::Evict, b, 3, 3);
  const NodeIndex third = small.residency(NodeKind::Evict, b, 6, 1);
  Machine machine = smallMachine();
  machine.copyOverheadUs = 2;
  machine.downAtOnce = 2;
  const Prediction prediction = predict(small.step, machine);
  EXPECT_DOUBLE_EQ(prediction.nodes[first].endUs, 2 + 3 + 3);
  EXPECT_DOUBLE_EQ(prediction.nodes[second].endUs, 2 + 3 + 3);
  EXPECT_DOUBLE_EQ(prediction.nodes[third].startUs, 8) << "two at a time";
  EXPECT_DOUBLE_EQ(prediction.nodes[third].endUs, 8 + 2 + 1);
  EXPECT_DOUBLE_EQ(prediction.downBusyUs, 11) << "of the link, not of every copy";
}

TEST(Prediction, CopiesToTheHostMayHaveAnOverheadOfTheirOwn) {
  SmallStep small;
  const BufferIndex b = small.local("b", 4);
  const NodeIndex evict = small.residency(NodeKind::Evict, b, 0, 2),
                  prefetch = small.residency(NodeKind::Prefetch, b, 2, 2);
  small.edge(evict, prefetch);
  Machine machine = smallMachine();
  machine.copyOverheadUs = 1;
  EXPECT_DOUBLE_EQ(predict(small.step, machine).totalUs, 1 + 2 + 1 + 2);
  machine.downOverheadUs = 3;
  EXPECT_DOUBLE_EQ(predict(small.step, machine).nodes[evict].endUs, 3 + 2);
  EXPECT_DOUBLE_EQ(predict(small.step, machine).totalUs, 3 + 2 + 1 + 2);
}

// Nothing is asked for where an operation comes after another one.
TEST(Prediction, ADelayIsAfterWhatHasNoLane) {
  SmallStep small;
  const BufferIndex b = small.local("b", 4);
  const NodeIndex kernel = small.alone("k", 10, {});
  const NodeIndex evict = small.residency(NodeKind::Evict, b, 0, 2),
                  prefetch = small.residency(NodeKind::Prefetch, b, 2, 2);
  small.edge(kernel, evict);
  small.edge(evict, prefetch);
  std::vector<Task> tasks = tasksOf(small.step, smallMachine());
  for (const NodeIndex node : {evict, prefetch})
    tasks[node].delayUs = 5;
  const Prediction prediction = predictAsReady(small.step, tasks, smallMachine());
  EXPECT_DOUBLE_EQ(prediction.nodes[evict].startUs, 10 + 5);
  EXPECT_DOUBLE_EQ(prediction.nodes[prefetch].startUs, 10 + 5 + 2);
}

TEST(Prediction, WhatGoesUpIsOneAtATimeHoweverManyGoDown) {
  SmallStep small;
  const BufferIndex b = small.local("b", 4);
  small.residency(NodeKind::Prefetch, b, 0, 2);
  small.residency(NodeKind::Prefetch, b, 2, 2);
  Machine machine = smallMachine();
  machine.copyOverheadUs = 1;
  machine.downAtOnce = 2;
  EXPECT_DOUBLE_EQ(predict(small.step, machine).totalUs, 2 * (1 + 2));
}

TEST(Prediction, CopiesWaitForAKernelWithHostedOperands) {
  SmallStep small;
  const BufferIndex hosted = small.local("hosted", 6), b = small.local("b", 6);
  small.step.buffers[hosted].hosted = {{0, 6 * smallPage}};
  const NodeIndex kernel = small.alone("k", 2, {small.read(hosted)});
  EXPECT_DOUBLE_EQ(predict(small.step, smallMachine()).totalUs, 8);
  const NodeIndex copy = small.residency(NodeKind::Prefetch, b, 0, 6);
  const Prediction prediction = predict(small.step, smallMachine());
  // The kernel moves its pages from 2 us to 8, and the copy the last four of its own after that.
  EXPECT_DOUBLE_EQ(prediction.nodes[kernel].endUs, 8);
  EXPECT_DOUBLE_EQ(prediction.nodes[copy].endUs, 12);
  EXPECT_EQ(prediction.upBytes, 6 * smallPage); // of transfers
  EXPECT_TRUE(prediction.stalls.empty());
}

TEST(Prediction, ButGoOnAsFarAsTheLinkIsLeftToThem) {
  Machine machine = smallMachine();
  machine.hostedShare = 0.75;
  machine.besideHostedShare = 0.25;
  SmallStep small;
  const BufferIndex hosted = small.local("hosted", 6), b = small.local("b", 8), c = small.local("c", 2);
  small.step.buffers[hosted].hosted = {{0, 6 * smallPage}};
  const NodeIndex kernel = small.alone("k", 2, {small.read(hosted)});
  const NodeIndex copy = small.residency(NodeKind::Prefetch, b, 0, 8),
                  other = small.residency(NodeKind::Evict, c, 0, 2);
  const Prediction prediction = predict(small.step, machine);
  // Both directions have carried 1.5 pages when the kernel has computed, for 2 us, and what goes down is done while it
  // moves its pages, at three quarters of the link, from 2 us to 10.
  EXPECT_DOUBLE_EQ(prediction.nodes[kernel].endUs, 10);
  const double alone = 8 - 0.5 / (0.25 * 0.75); // from when what goes down has ended
  EXPECT_DOUBLE_EQ(prediction.nodes[other].endUs, 10 - alone);
  EXPECT_DOUBLE_EQ(prediction.nodes[copy].endUs, 10 + (8 - 1.5 - 0.5 - 0.25 * alone));
}

TEST(Prediction, OverheadsPassSlowlyBesideAKernelWithHostedOperands) {
  Machine machine = smallMachine();
  machine.copyOverheadUs = 4;
  machine.besideHostedShare = 0;
  machine.besideHostedPace = 0.25;
  SmallStep small;
  const BufferIndex hosted = small.local("hosted", 6), b = small.local("b", 6);
  small.step.buffers[hosted].hosted = {{0, 6 * smallPage}};
  const NodeIndex kernel = small.alone("k", 2, {small.read(hosted)});
  const NodeIndex copy = small.residency(NodeKind::Prefetch, b, 0, 6);
  const Prediction prediction = predict(small.step, machine);
  // 2 us of the overhead are over when the kernel moves its pages, for 6 us; half a microsecond is left then.
  EXPECT_DOUBLE_EQ(prediction.nodes[kernel].endUs, 8);
  EXPECT_DOUBLE_EQ(prediction.nodes[copy].endUs, 8 + 0.5 + 6);
}

// The kernel begins to move its page before the copy has ended, by less than a byte.
TEST(Prediction, ACopyThatIsDoneWaitsForNoKernel) {
  Machine machine = smallMachine();
  machine.upBytesPerSecond = 902e6;
  machine.copyOverheadUs = 0.25;
  const double copyUs = machine.copyOverheadUs + 3 * smallPage / 902.0;
  SmallStep small;
  const BufferIndex hosted = small.local("hosted", 1), b = small.local("b", 3);
  small.step.buffers[hosted].hosted = {{0, smallPage}};
  const NodeIndex copy = small.residency(NodeKind::Prefetch, b, 0, 3);
  const NodeIndex kernel = small.alone("k", std::nextafter(copyUs, 0), {small.read(hosted)});
  const Prediction prediction = predict(small.step, machine);
  EXPECT_DOUBLE_EQ(prediction.nodes[copy].endUs, copyUs);
  EXPECT_DOUBLE_EQ(prediction.nodes[kernel].endUs, copyUs + smallPage / 902.0);
}

TEST(Prediction, KernelsWithHostedOperandsShareTheLink) {
  SmallStep small;
  for (std::uint64_t pages : {6, 3}) {
    const BufferIndex hosted = small.local("hosted", pages);
    small.step.buffers[hosted].hosted = {{0, pages * smallPage}};
    small.alone("k", 2, {small.read(hosted)});
  }
  Machine machine = smallMachine();
  const Prediction prediction = predict(small.step, machine);
  EXPECT_DOUBLE_EQ(prediction.nodes[1].endUs, 2 + 6); // half of the link each
  EXPECT_DOUBLE_EQ(prediction.nodes[0].endUs, 2 + 9);
  machine.hostedShare = 0.5;
  EXPECT_DOUBLE_EQ(predict(small.step, machine).totalUs, 2 + 18);
}

TEST(Prediction, AKernelReadsAndWritesHostedOperandsAtOnce) {
  SmallStep small;
  const BufferIndex in = small.local("in", 6), out = small.local("out", 3);
  small.step.buffers[in].hosted = {{0, 6 * smallPage}};
  small.step.buffers[out].hosted = {{0, 3 * smallPage}};
  small.kernel("k", 1, {small.read(in), small.write(out)});
  small.kernel("next", 1, {});
  Machine machine = smallMachine();
  EXPECT_DOUBLE_EQ(predict(small.step, machine).totalUs, 9); // 3 pages each way take 4 us
  machine.hostedBothShare = 0.5;
  EXPECT_DOUBLE_EQ(predict(small.step, machine).totalUs, 11) << "and 6 where kernels get less of both than copies do";
}

// What moves no value waits for the kernel that runs when it is its turn, or for the next one, and for no third.
TEST(ReplayModel, WhatChangesAMappingWaitsOnceForAKernelWithHostedOperands) {
  const Task kernel{.costUs = 1, .hosted = {{9 * smallPage, 0}}};
  const auto endUs = [&](double delayUs, double overheadUs) {
    // A node that takes 5 us, and two kernels after it; what waits is asked for by the first node, so much later.
    const std::vector<Task> tasks = {
        {.costUs = 5},
        kernel,
        kernel,
        {.lane = Lane::Down, .overheadUs = overheadUs, .delayUs = delayUs, .waitsForHosted = true}};
    const std::vector<TaskGraph::Dependency> order = {{0, 1}, {1, 2}, {0, 3}};
    const ReplayTimes times = replayAsReady(tasks, TaskGraph(tasks.size(), order), smallMachine());
    EXPECT_DOUBLE_EQ(times.endUs[1], 15);
    EXPECT_DOUBLE_EQ(times.endUs[2], 25);
    return times.endUs[3];
  };
  EXPECT_DOUBLE_EQ(endUs(0, 2), 17) << "it begins when the first kernel does";
  EXPECT_DOUBLE_EQ(endUs(4, 2), 17) << "the first kernel runs";
  EXPECT_DOUBLE_EQ(endUs(10.5, 2), 27) << "the second one runs";
  EXPECT_DOUBLE_EQ(endUs(20.5, 2), 27.5) << "no kernel runs";
  const std::vector<Task> tasks = {
      {.costUs = 5}, kernel, {.lane = Lane::Down, .overheadUs = 6, .waitsForHosted = true}};
  const std::vector<TaskGraph::Dependency> order = {{0, 1}};
  const ReplayTimes times = replayAsReady(tasks, TaskGraph(tasks.size(), order), smallMachine());
  EXPECT_DOUBLE_EQ(times.endUs[2], 15 + 1) << "5 us of it were over when the kernel started";
  Machine machine = smallMachine();
  machine.besideHostedPace = 0.1;
  const std::vector<Task> another = {kernel, kernel, {.lane = Lane::Down, .overheadUs = 6, .waitsForHosted = true}};
  const std::vector<TaskGraph::Dependency> inARow = {{0, 1}};
  EXPECT_DOUBLE_EQ(replayAsReady(another, TaskGraph(another.size(), inARow), machine).endUs[2], 10 + 6)
      << "once, and no slower beside the next";
}

TEST(Prediction, ACopyThatIsNotReadyHoldsBackTheOnesAfterIt) {
  SmallStep small;
  const BufferIndex b = small.local("b", 6);
  const NodeIndex kernel = small.kernel("k", 10, {});
  const NodeIndex late = small.residency(NodeKind::Evict, b, 0, 3);
  const NodeIndex early = small.residency(NodeKind::Evict, b, 3, 3);
  small.edge(kernel, late);
  const Prediction prediction = predict(small.step, smallMachine());
  EXPECT_DOUBLE_EQ(prediction.nodes[late].startUs, 10);
  EXPECT_DOUBLE_EQ(prediction.nodes[early].startUs, 13);
  const Prediction ofAgent = predictAsReady(small.step, smallMachine());
  EXPECT_DOUBLE_EQ(ofAgent.nodes[early].startUs, 0) << "an agent takes what it can";
  EXPECT_DOUBLE_EQ(ofAgent.nodes[late].startUs, 10);
}

TEST(Prediction, BothDirectionsShareTheLink) {
  SmallStep small;
  const BufferIndex b = small.local("b", 12);
  small.residency(NodeKind::Evict, b, 0, 6);
  small.residency(NodeKind::Prefetch, b, 6, 3);
  // Together 0.75 pages a microsecond each: the prefetch needs 4 us, in which 3 of the 6 pages leave; 3 us more alone.
  const Prediction prediction = predict(small.step, smallMachine());
  EXPECT_DOUBLE_EQ(prediction.nodes[1].endUs, 4);
  EXPECT_DOUBLE_EQ(prediction.nodes[0].endUs, 7);
}

TEST(Prediction, ACopyInItsOverheadNeedsNoBandwidth) {
  SmallStep small;
  const BufferIndex b = small.local("b", 12);
  small.residency(NodeKind::Evict, b, 0, 4);
  small.residency(NodeKind::Prefetch, b, 6, 1);
  Machine machine = smallMachine();
  machine.copyOverheadUs = 4;
  // Both spend 4 us before their bytes move; then 0.75 pages a microsecond each until the prefetch's page is there.
  const Prediction prediction = predict(small.step, machine);
  EXPECT_DOUBLE_EQ(prediction.nodes[1].endUs, 4 + 1 / 0.75);
  EXPECT_DOUBLE_EQ(prediction.nodes[0].endUs, 4 + 1 / 0.75 + 3);
}

TEST(Prediction, AStallNamesTheTransferAndItsBuffer) {
  SmallStep small;
  const BufferIndex b = small.live("b", 5);
  const NodeIndex first = small.kernel("first", 2, {});
  const NodeIndex prefetch = small.residency(NodeKind::Prefetch, b, 0, 5);
  const NodeIndex reader = small.alone("reader", 1, {small.read(b)});
  small.edge(first, reader);
  small.edge(prefetch, reader);
  const Prediction prediction = predict(small.step, smallMachine());
  ASSERT_EQ(prediction.stalls.size(), 1u);
  EXPECT_EQ(prediction.stalls[0].node, reader);
  EXPECT_EQ(prediction.stalls[0].transfer, prefetch);
  EXPECT_EQ(prediction.stalls[0].buffer, b);
  EXPECT_DOUBLE_EQ(prediction.stalls[0].atUs, 2);
  EXPECT_DOUBLE_EQ(prediction.stalls[0].durationUs, 3);
}

TEST(Prediction, AStallBehindADiscardNamesWhatTheDiscardWaitsFor) {
  SmallStep small;
  const BufferIndex b = small.live("b", 5);
  const NodeIndex evict = small.residency(NodeKind::Evict, b, 0, 5);
  const NodeIndex discard = small.residency(NodeKind::Discard, b, 0, 5);
  const NodeIndex kernel = small.alone("k", 1, {});
  small.edge(evict, discard);
  small.edge(discard, kernel);
  const Prediction prediction = predict(small.step, smallMachine());
  ASSERT_EQ(prediction.stalls.size(), 1u);
  EXPECT_EQ(prediction.stalls[0].transfer, evict);
}

TEST(Prediction, MemoryBeforePlanningIsWhatLives) {
  SmallStep small;
  const BufferIndex a = small.local("a", 2), w = small.live("w", 3);
  small.exclusive("x", 1);
  small.kernel("k0", 1, {small.write(a), small.read(w)});
  small.kernel("k1", 1, {});
  const Prediction prediction = predict(small.step, smallMachine());
  EXPECT_EQ(prediction.peakBytes, 6 * smallPage);
  EXPECT_EQ(prediction.memory.back().bytes, 4 * smallPage);
  EXPECT_DOUBLE_EQ(prediction.memory.back().atUs, 1);
}

TEST(Prediction, AFrameInUseByTwoPagesInTurnCountsOnce) {
  SmallStep small;
  const BufferIndex a = small.local("a", 1), b = small.local("b", 1);
  small.step.buffers[a].frames = small.step.buffers[b].frames = {0};
  const NodeIndex k0 = small.kernel("k0", 2, {small.write(a)});
  const NodeIndex k1 = small.kernel("k1", 2, {small.write(b)});
  const NodeIndex k2 = small.kernel("k2", 2, {small.write(a)});
  (void)k0, (void)k1, (void)k2;
  EXPECT_EQ(predict(small.step, smallMachine()).peakBytes, smallPage);
}

// Page 0 stays in its frame at another address, page 1 goes on in another one.
TEST(Prediction, APageThatStaysIsInItsFrameFromItsFirstToItsLastEvent) {
  SmallStep small;
  const BufferIndex a = small.local("a", 2), next = small.continuation(a);
  small.step.buffers[a].frames = {0, 1};
  small.step.buffers[next].frames = {0, 2};
  small.kernel("write", 1, {small.write(a)});
  small.kernel("between", 1, {});
  small.kernel("read", 1, {small.read(next)});
  std::vector<std::uint64_t> bytes;
  for (const MemoryPoint &point : predict(small.step, smallMachine()).memory)
    bytes.push_back(point.bytes);
  EXPECT_EQ(bytes, (std::vector<std::uint64_t>{2 * smallPage, smallPage, 2 * smallPage, 0}));
}

TEST(Prediction, AnEvictedPageLeavesWhicheverBufferNamesIt) {
  SmallStep small;
  const BufferIndex a = small.local("a", 1), next = small.continuation(a);
  small.step.buffers[a].frames = small.step.buffers[next].frames = {0};
  small.kernel("write", 1, {small.write(a)});
  small.residency(NodeKind::Evict, next, 0, 1);
  small.kernel("between", 10, {});
  small.residency(NodeKind::Prefetch, a, 0, 1);
  small.kernel("read", 1, {small.read(next)});
  for (NodeIndex node = 1; node + 1 < small.step.nodes.size(); node += 2)
    small.edge(node - 1, node);
  std::vector<std::uint64_t> bytes;
  for (const MemoryPoint &point : predict(small.step, smallMachine()).memory)
    bytes.push_back(point.bytes);
  EXPECT_EQ(bytes, (std::vector<std::uint64_t>{smallPage, 0, smallPage, 0}));
}

TEST(Prediction, PagesAfterHostedOnesHaveFrames) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4);
  small.step.buffers[a].hosted = {{0, 2 * smallPage}};
  small.step.buffers[a].frames = {noFrame, noFrame, 0, 1};
  small.kernel("k", 1, {small.write(a)});
  EXPECT_EQ(predict(small.step, smallMachine()).peakBytes, 2 * smallPage);
}

TEST(Prediction, AnEvictedPageLeavesUntilItsPrefetch) {
  SmallStep small;
  const BufferIndex a = small.local("a", 1);
  small.step.buffers[a].frames = {0};
  const NodeIndex write = small.kernel("write", 1, {small.write(a)});
  const NodeIndex evict = small.residency(NodeKind::Evict, a, 0, 1);
  const NodeIndex other = small.alone("other", 10, {});
  const NodeIndex prefetch = small.residency(NodeKind::Prefetch, a, 0, 1);
  const NodeIndex read = small.alone("read", 1, {small.read(a)});
  small.edge(write, evict);
  small.edge(evict, other);
  small.edge(other, prefetch);
  small.edge(prefetch, read);
  const Prediction prediction = predict(small.step, smallMachine());
  std::vector<std::uint64_t> bytes;
  for (const MemoryPoint &point : prediction.memory)
    bytes.push_back(point.bytes);
  EXPECT_EQ(bytes, (std::vector<std::uint64_t>{smallPage, 0, smallPage, 0}));
}

TEST(Prediction, TenThousandNodesTakeMilliseconds) {
  SmallStep small;
  const BufferIndex b = small.local("b", 10'000);
  for (int i = 0; i < 5'000; ++i) {
    const NodeIndex kernel = small.alone("k", 1, {});
    const NodeIndex copy = small.residency(i % 2 ? NodeKind::Evict : NodeKind::Prefetch, b, 0, 1);
    if (i > 0)
      small.edge(kernel - 2, kernel);
    small.edge(kernel, copy);
  }
  const auto begin = std::chrono::steady_clock::now();
  const Prediction prediction = predict(small.step, smallMachine());
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - begin;
  std::printf("10000 nodes predicted in %.1f ms\n", ms.count());
  EXPECT_GE(prediction.totalUs, 5'000);
}

} // namespace
} // namespace pumpgraph
