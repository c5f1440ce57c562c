// SPDX-License-Identifier: Apache-2.0
#include "passes/simulate/Simulate.h"

#include "passes/analysis/Timeline.h"
#include "test/unit/simulate/PagedStep.h"

#include <gtest/gtest.h>

#include <random>

namespace pumpgraph {
namespace {

using test::PagedStep;
using test::roundMemory;
using test::simulateBlocks;

constexpr std::uint64_t plenty = 1000;

// A batch takes 256 faults, half a block. Half is not dense; the second batch has the rest.
TEST(DemandPaging, ADenseSweepTakesTwoBatchesABlock) {
  PagedStep paged;
  const BufferIndex x = paged.live("x", 1);
  paged.kernel(100, {paged.read(x)});
  const Simulation result = simulateBlocks(paged.step, plenty, roundMemory());
  EXPECT_EQ(result.work.batches, 2U);
  EXPECT_EQ(result.work.fetchedBytes, blockBytes);
  EXPECT_DOUBLE_EQ(result.totalUs, 100 + 2 * (10 + 3) + 1);
}

// At 5 percent the first batch brings the block.
TEST(DemandPaging, ALowThresholdSavesABatch) {
  PagedStep paged;
  const BufferIndex x = paged.live("x", 1);
  paged.kernel(100, {paged.read(x)});
  UnifiedMemory memory = roundMemory();
  memory.densityPercent = 5;
  const Simulation result = simulateBlocks(paged.step, plenty, memory);
  EXPECT_EQ(result.work.batches, 1U);
  EXPECT_DOUBLE_EQ(result.totalUs, 100 + 13 + 1);
}

// One page faults, 64 KiB come; at 5 percent half a block comes.
TEST(DemandPaging, AFaultGrows) {
  PagedStep paged;
  const BufferIndex x = paged.live("x", 1);
  paged.kernel(100, {paged.readPart(x, 4096, 4096)});
  EXPECT_EQ(simulateBlocks(paged.step, plenty, roundMemory()).work.fetchedBytes, leafBytes);
  UnifiedMemory memory = roundMemory();
  memory.densityPercent = 5;
  EXPECT_EQ(simulateBlocks(paged.step, plenty, memory).work.fetchedBytes, blockBytes / 2);
}

// With one touch in 64 KiB eight blocks fit a batch.
TEST(DemandPaging, SparseTouchesShareABatch) {
  PagedStep paged;
  const BufferIndex x = paged.live("x", 8);
  paged.kernel(100, {paged.read(x)});
  UnifiedMemory memory = roundMemory();
  memory.touchBytes = leafBytes;
  const Simulation result = simulateBlocks(paged.step, plenty, memory);
  EXPECT_EQ(result.work.batches, 1U);
  EXPECT_EQ(result.work.blocksServiced, 8U);
}

TEST(DemandPaging, WhatIsThereDoesNotFault) {
  PagedStep paged;
  const BufferIndex x = paged.live("x", 1);
  paged.kernel(100, {paged.read(x)});
  paged.kernel(100, {paged.read(x)});
  const Simulation result = simulateBlocks(paged.step, plenty, roundMemory());
  EXPECT_EQ(result.work.batches, 2U);
  ASSERT_EQ(result.stalls.size(), 1U);
  EXPECT_EQ(result.stalls[0].node, 0U);
  EXPECT_DOUBLE_EQ(result.stalls[0].durationUs, 27);
  EXPECT_DOUBLE_EQ(result.stalls[0].times.fetchUs, 1);
}

// A page that never had a value gets memory, not bytes.
TEST(DemandPaging, AFirstTouchIsPopulated) {
  PagedStep paged;
  const BufferIndex x = paged.local("x", 1);
  paged.kernel(100, {paged.write(x)});
  const Simulation result = simulateBlocks(paged.step, plenty, roundMemory());
  EXPECT_EQ(result.work.fetchedBytes, 0U);
  EXPECT_EQ(result.work.populatedBytes, blockBytes);
  EXPECT_DOUBLE_EQ(result.totalUs, 100 + 26 + 0.5);
}

/// Room for two blocks: "a" comes, "b" comes, "a" is used again, then "c" needs a block; at last both old ones are
/// read.
struct Crowd {
  PagedStep paged;
  BufferIndex a = paged.live("a", 1), b = paged.live("b", 1), c = paged.live("c", 1);
  static constexpr NodeIndex readsB = 4;

  Crowd() {
    paged.kernel(1, {paged.read(a)});
    paged.kernel(1, {paged.read(b)});
    paged.kernel(1, {paged.read(a)});
    paged.kernel(1, {paged.read(c)});
    paged.kernel(1, {paged.read(b)});
  }
};

// "a" was used last, but came first: it is "a" that leaves. So "b" is still there in the end.
TEST(DemandPaging, TheOldestArrivalLeavesNotTheLeastRecentlyUsed) {
  const Crowd crowd;
  const Simulation result = simulateBlocks(crowd.paged.step, 2, roundMemory());
  EXPECT_EQ(result.work.evictedBlocks, 1U);
  for (const PagingStall &stall : result.stalls)
    EXPECT_NE(stall.node, Crowd::readsB);
}

// A later fault on a block makes it young again.
TEST(DemandPaging, AFaultRenewsABlock) {
  PagedStep paged;
  const BufferIndex a = paged.live("a", 1), b = paged.live("b", 1), c = paged.live("c", 1);
  paged.kernel(1, {paged.readPart(a, 0, leafBytes)});
  paged.kernel(1, {paged.read(b)});
  paged.kernel(1, {paged.readPart(a, blockBytes / 2, leafBytes)});
  paged.kernel(1, {paged.read(c)});
  const NodeIndex again = paged.kernel(1, {paged.readPart(a, 0, leafBytes)});
  const Simulation result = simulateBlocks(paged.step, 2, roundMemory());
  EXPECT_EQ(result.work.evictedBlocks, 1U);
  for (const PagingStall &stall : result.stalls)
    EXPECT_NE(stall.node, again);
}

// A page has one home: without a copy kept behind, a clean block is written back like a dirty one.
TEST(DemandPaging, ACleanBlockIsWrittenBackUnlessItsHostCopyStays) {
  const Crowd crowd;
  UnifiedMemory memory = roundMemory();
  EXPECT_EQ(simulateBlocks(crowd.paged.step, 2, memory).work.writtenBackBytes, blockBytes);
  memory.hostCopyStays = true;
  const Simulation kept = simulateBlocks(crowd.paged.step, 2, memory);
  EXPECT_EQ(kept.work.evictedBlocks, 1U);
  EXPECT_EQ(kept.work.writtenBackBytes, 0U);
}

// Written since it came, it is copied even where host copies stay, and its value comes back later.
TEST(DemandPaging, ADirtyBlockIsAlwaysWrittenBack) {
  PagedStep paged;
  const BufferIndex a = paged.live("a", 1), b = paged.live("b", 1);
  paged.kernel(1, {paged.write(a)});
  paged.kernel(1, {paged.read(b)});
  paged.kernel(1, {paged.read(a)});
  UnifiedMemory memory = roundMemory();
  memory.hostCopyStays = true;
  const Simulation result = simulateBlocks(paged.step, 1, memory);
  EXPECT_EQ(result.work.writtenBackBytes, blockBytes); // "a"; "b" is clean
  EXPECT_EQ(result.work.fetchedBytes, 3 * blockBytes);
}

// The same write-back beside fetches and compute, and in their way.
TEST(DemandPaging, BothDirections) {
  PagedStep paged;
  const BufferIndex a = paged.live("a", 1), b = paged.live("b", 1);
  paged.kernel(100, {paged.read(a)});
  paged.kernel(100, {paged.read(b)});
  UnifiedMemory memory = roundMemory();
  EXPECT_DOUBLE_EQ(simulateBlocks(paged.step, 1, memory).totalUs, 200 + 2 * 27 + 2);
  memory.writesBackBeside = true;
  EXPECT_DOUBLE_EQ(simulateBlocks(paged.step, 1, memory).totalUs, 200 + 2 * 27);
}

// A link that needs longer to write back than everything else takes is what the kernel waits for.
TEST(DemandPaging, AWriteBackThatIsTooLongToHide) {
  PagedStep paged;
  const BufferIndex a = paged.live("a", 1), b = paged.live("b", 1);
  paged.kernel(100, {paged.read(a)});
  paged.kernel(100, {paged.read(b)});
  UnifiedMemory memory = roundMemory();
  memory.writesBackBeside = true;
  memory.downBytesPerSecond = static_cast<double>(blockBytes) * 1e6 / 500; // 500 us a block
  EXPECT_DOUBLE_EQ(simulateBlocks(paged.step, 1, memory).totalUs, 127 + 500);
}

// Compute hides all batches but the first.
TEST(DemandPaging, ComputeHidesLaterBatches) {
  PagedStep paged;
  const BufferIndex x = paged.live("x", 1);
  paged.kernel(100, {paged.read(x)});
  UnifiedMemory memory = roundMemory();
  memory.computesWhileFaulting = true;
  EXPECT_DOUBLE_EQ(simulateBlocks(paged.step, plenty, memory).totalUs, 13.5 + 100);
  paged.step.nodes[0].costUs = 1;
  EXPECT_DOUBLE_EQ(simulateBlocks(paged.step, plenty, memory).totalUs, 13.5 + 13.5);
}

// The host has room for one block; the second one evicted goes to the disk and comes back from there.
TEST(DemandPaging, WhatTheHostCannotHoldGoesToTheDisk) {
  PagedStep paged;
  const BufferIndex a = paged.local("a", 1), b = paged.local("b", 1), c = paged.local("c", 1);
  paged.kernel(1, {paged.write(a)});
  paged.kernel(1, {paged.write(b)});
  paged.kernel(1, {paged.write(c)});
  paged.kernel(1, {paged.read(b)});
  UnifiedMemory memory = roundMemory();
  memory.hostBytes = blockBytes;
  const Simulation result = simulateBlocks(paged.step, 1, memory);
  EXPECT_EQ(result.work.writtenBackBytes, 3 * blockBytes);
  EXPECT_EQ(result.work.diskOutBytes, 2 * blockBytes); // "b", then "c": "a" is never read and stays on the host
  EXPECT_EQ(result.work.diskInBytes, blockBytes);
}

// One block of each comes back. Taking turns: 1 us and 4 us; side by side, the host has 3/4 of the link: 4/3 us
// behind 4.
TEST(DemandPaging, HostMemoryHasWhatTheDiskLeavesOfTheLink) {
  PagedStep paged;
  const BufferIndex a = paged.live("a", 1), b = paged.live("b", 1);
  paged.kernel(0, {paged.read(a), paged.read(b)});
  UnifiedMemory memory = roundMemory();
  memory.densityPercent = 0;
  memory.hostBytes = blockBytes;
  memory.diskBytesPerSecond = memory.upBytesPerSecond / 4;
  EXPECT_DOUBLE_EQ(simulateBlocks(paged.step, plenty, memory).times.fetchUs, 1 + 4);
  memory.fetchesBesideDisk = true;
  EXPECT_DOUBLE_EQ(simulateBlocks(paged.step, plenty, memory).times.fetchUs, 4);
  memory.diskBytesPerSecond = memory.upBytesPerSecond; // leaves nothing: they take turns
  EXPECT_DOUBLE_EQ(simulateBlocks(paged.step, plenty, memory).times.fetchUs, 1 + 1);
}

// "a" leaves for the host, and by coming back makes room there for "b".
TEST(DemandPaging, WhatComesBackFreesItsHostMemory) {
  PagedStep paged;
  const BufferIndex a = paged.local("a", 1), b = paged.local("b", 1);
  paged.kernel(1, {paged.write(a)});
  paged.kernel(1, {paged.write(b)});
  paged.kernel(1, {paged.read(a)});
  paged.kernel(1, {paged.read(b)});
  UnifiedMemory memory = roundMemory();
  memory.hostBytes = 2 * blockBytes; // "b" has to leave before "a" can come back
  const Simulation result = simulateBlocks(paged.step, 1, memory);
  EXPECT_EQ(result.work.evictedBlocks, 3U);
  EXPECT_EQ(result.work.diskOutBytes, 0U);
}

// Room for half of two operands: when the sweep ends, the second half of each is there.
TEST(DemandPaging, OperandsAdvanceTogether) {
  PagedStep paged;
  const BufferIndex x = paged.live("x", 4), y = paged.live("y", 4);
  paged.kernel(1, {paged.read(x), paged.read(y)});
  const NodeIndex ends =
      paged.kernel(1, {paged.readPart(x, 3 * blockBytes, leafBytes), paged.readPart(y, 3 * blockBytes, leafBytes)});
  const Simulation result = simulateBlocks(paged.step, 4, roundMemory());
  for (const PagingStall &stall : result.stalls)
    EXPECT_NE(stall.node, ends);
}

// Operands advance together, so what a kernel pushes out it is done with: one pass, however small the memory.
TEST(DemandPaging, AKernelLargerThanTheMemoryEnds) {
  PagedStep paged;
  const BufferIndex x = paged.live("x", 50), y = paged.local("y", 50);
  paged.kernel(1, {paged.read(x), paged.write(y)});
  paged.kernel(1, {paged.read(x), paged.write(y)});
  for (std::uint64_t budget : {1, 2, 7}) {
    UnifiedMemory memory = roundMemory();
    memory.touchBytes = leafBytes; // batches of eight blocks
    const Simulation result = simulateBlocks(paged.step, budget, memory);
    EXPECT_EQ(result.work.fetchedBytes + result.work.populatedBytes, 200 * blockBytes) << budget;
    EXPECT_EQ(result.work.evictedBlocks, 200 - budget) << budget;
  }
}

TEST(DemandPaging, ExclusiveBuffersTakeRoomAndStay) {
  PagedStep paged;
  const BufferIndex pinned = paged.exclusive("pinned", 3), a = paged.live("a", 1), b = paged.live("b", 1);
  paged.kernel(1, {paged.read(pinned), paged.read(a)});
  paged.kernel(1, {paged.read(pinned), paged.read(b)});
  EXPECT_EQ(simulateBlocks(paged.step, 5, roundMemory()).work.evictedBlocks, 0U);
  const Simulation tight = simulateBlocks(paged.step, 4, roundMemory());
  EXPECT_EQ(tight.work.evictedBlocks, 1U);
  EXPECT_EQ(tight.work.fetchedBytes, 2 * blockBytes);
  const auto none = simulate(paged.step, {3 * blockBytes, PagingPolicy::DemandPaging, roundMemory()});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().find("never move take 6291456 bytes"), std::string::npos) << none.error();
}

// The second replay finds what the first one fetched.
TEST(DemandPaging, LaterReplaysFindWhatIsThere) {
  PagedStep paged;
  const BufferIndex x = paged.live("x", 1);
  paged.kernel(100, {paged.read(x)});
  UnifiedMemory memory = roundMemory();
  memory.replays = 2;
  const Simulation result = simulateBlocks(paged.step, plenty, memory);
  ASSERT_EQ(result.replaysUs.size(), 2U);
  EXPECT_DOUBLE_EQ(result.replaysUs[0], 127);
  EXPECT_DOUBLE_EQ(result.totalUs, 100);
}

// Two branches: their compute runs side by side, their faults one after the other.
TEST(DemandPaging, BranchesShareTheDriver) {
  PagedStep paged;
  const BufferIndex a = paged.live("a", 1), b = paged.live("b", 1);
  paged.kernel(100, {paged.read(a)});
  paged.kernel(100, {paged.read(b)});
  paged.step.edges.clear();
  EXPECT_DOUBLE_EQ(simulateBlocks(paged.step, plenty, roundMemory()).totalUs, 100 + 2 * 27);
}

// A call an operand, then the kernel, without a fault.
TEST(PrefetchAtLaunch, OperandsComeBeforeTheKernel) {
  PagedStep paged;
  const BufferIndex x = paged.live("x", 4), y = paged.local("y", 2);
  paged.kernel(100, {paged.read(x), paged.write(y)});
  UnifiedMemory memory = roundMemory();
  memory.computesWhileFaulting = true; // nothing hides: it is the kernel's own stream
  const Simulation result = simulateBlocks(paged.step, plenty, memory, PagingPolicy::PrefetchAtLaunch);
  EXPECT_EQ(result.work.batches, 0U);
  EXPECT_EQ(result.work.prefetchCalls, 2U);
  EXPECT_DOUBLE_EQ(result.totalUs, 2 * 5 + 4 * 1 + 2 * 0.5 + 100);
}

// What does not fit beside the rest of its own kernel faults after all.
TEST(PrefetchAtLaunch, AKernelLargerThanTheMemoryFaults) {
  PagedStep paged;
  const BufferIndex x = paged.live("x", 10);
  paged.kernel(100, {paged.read(x)});
  const Simulation result = simulateBlocks(paged.step, 4, roundMemory(), PagingPolicy::PrefetchAtLaunch);
  EXPECT_GT(result.work.batches, 0U);
  EXPECT_GT(result.work.fetchedBytes, 10 * blockBytes);
}

//===----------------------------------------------------------------------===//
// Whatever the step
//===----------------------------------------------------------------------===//

/// Kernels that touch parts of buffers of odd sizes, in two branches.
Description randomStep(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  PagedStep paged;
  for (int i = 0; i < 12; ++i) {
    const BufferIndex b = below(3) == 0 ? paged.live("live", 1) : paged.local("local", 1);
    paged.step.buffers[b].size = 1 + below(9 * blockBytes);
  }
  for (int i = 0; i < 40; ++i) {
    std::vector<Access> accesses;
    for (std::uint64_t operand = 0; operand <= below(3); ++operand) {
      const auto b = static_cast<BufferIndex>(below(paged.step.buffers.size()));
      const std::uint64_t offset = below(paged.step.buffers[b].size);
      const auto mode = static_cast<std::uint8_t>(1 + below(3));
      accesses.push_back({b, {offset, 1 + below(paged.step.buffers[b].size - offset)}, mode, modeNone});
    }
    paged.kernel(static_cast<double>(below(300)), std::move(accesses));
  }
  std::erase_if(paged.step.edges, [](const Edge &edge) { return edge.to % 7 == 0; });
  return paged.step;
}

class AnyStep : public testing::TestWithParam<unsigned> {};

TEST_P(AnyStep, IsNeverFasterThanInMemory) {
  const Description step = randomStep(GetParam());
  for (const UnifiedMemory &memory : {roundMemory(), h200UnifiedMemory(), g10UnifiedMemory()})
    for (PagingPolicy policy : {PagingPolicy::DemandPaging, PagingPolicy::PrefetchAtLaunch})
      for (std::uint64_t budget : {1, 3, 10, 40, 200})
        EXPECT_GE(simulateBlocks(step, budget, memory, policy).totalUs, inMemoryTimes(step).totalUs - 1e-6);
}

TEST_P(AnyStep, LosesNothingWhereEverythingFits) {
  const Description step = randomStep(GetParam());
  for (PagingPolicy policy : {PagingPolicy::DemandPaging, PagingPolicy::PrefetchAtLaunch}) {
    const std::uint64_t blocks = simulateBlocks(step, 1, h200UnifiedMemory()).footprintBytes / blockBytes;
    const Simulation result = simulateBlocks(step, blocks, h200UnifiedMemory(), policy);
    EXPECT_EQ(result.work.evictedBlocks, 0U);
    EXPECT_NEAR(result.totalUs, inMemoryTimes(step).totalUs, 1e-6); // of the second replay
  }
}

TEST_P(AnyStep, EvictsNoMoreThanItBroughtAndMovesBothWaysAlike) {
  const Description step = randomStep(GetParam());
  const Simulation result = simulateBlocks(step, 5, roundMemory());
  EXPECT_GT(result.work.evictedBlocks, 0U);
  EXPECT_LE(result.work.writtenBackBytes, result.work.fetchedBytes + result.work.populatedBytes);
}

TEST_P(AnyStep, IsTheSameEveryTime) {
  const Description step = randomStep(GetParam());
  const Simulation first = simulateBlocks(step, 7, h200UnifiedMemory());
  const Simulation second = simulateBlocks(step, 7, h200UnifiedMemory());
  EXPECT_EQ(first.totalUs, second.totalUs);
  EXPECT_EQ(first.work.batches, second.work.batches);
  ASSERT_EQ(first.stalls.size(), second.stalls.size());
  for (std::size_t i = 0; i < first.stalls.size(); ++i)
    EXPECT_EQ(first.stalls[i].node, second.stalls[i].node);
}

INSTANTIATE_TEST_SUITE_P(Random, AnyStep, testing::Range(0U, 30U));

// On a sweep over everything a lower threshold never costs a batch.
TEST(DemandPaging, ALowerThresholdNeverCostsABatchOnADenseSweep) {
  PagedStep paged;
  const BufferIndex x = paged.live("x", 13), y = paged.local("y", 29);
  paged.kernel(1, {paged.read(x), paged.write(y)});
  UnifiedMemory memory = roundMemory();
  for (std::uint32_t faults : {16U, 60U, 256U}) {
    memory.faultsPerBatch = faults;
    std::uint64_t atLower = 42; // one for each block is the least
    for (std::uint32_t percent = 1; percent <= 100; ++percent) {
      memory.densityPercent = percent;
      const std::uint64_t batches = simulateBlocks(paged.step, plenty, memory).work.batches;
      EXPECT_GE(batches, atLower) << percent << " percent, " << faults << " faults";
      atLower = batches;
    }
    EXPECT_GT(atLower, 42U);
  }
}

} // namespace
} // namespace pumpgraph
