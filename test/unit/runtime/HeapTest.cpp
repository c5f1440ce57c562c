// SPDX-License-Identifier: Apache-2.0
// Allocation: addresses, frames, host memory, reuse, captures.
#include "runtime/memory/ReservedBlock.h"
#include "test/unit/runtime/MemoryTest.h"

#include <set>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

class HeapTest : public MemoryTest {
protected:
  void SetUp() override { openMemory(4); }

  CUdeviceptr allocate(std::uint64_t size, CUstream stream = nullptr) {
    const Expected<CUdeviceptr> address = heap_->allocate(size, stream, "buffer");
    EXPECT_TRUE(address) << (address ? "" : address.error().message);
    return address ? *address : 0;
  }
  Block &blockOf(CUdeviceptr address) { return heap_->block(heap_->find(address)->block); }
};

// Memory is there at once, and can be written to the last byte.
TEST_F(HeapTest, backsAllocationsWithDeviceFrames) {
  const CUdeviceptr address = allocate(2 * pageBytes + 100);
  EXPECT_EQ(blockOf(address).backing, Backing::Device);
  std::memset(reinterpret_cast<void *>(address), 1, 2 * pageBytes + 100);
  EXPECT_EQ(fake_.deviceFrames(), 3u);
}

// Addresses alone take no memory, and nothing leads to them. Given up, they are anybody's, unless something is mapped
// there.
TEST_F(HeapTest, reservesAddressesAlone) {
  std::shared_ptr<const ReservedBlock> reserved = *ReservedBlock::create(*heap_, 2);
  const BlockId id = reserved->id();
  const CUdeviceptr address = reserved->address();
  EXPECT_EQ(fake_.deviceFrames(), 0u);
  EXPECT_FALSE(heap_->find(address));
  EXPECT_NE(allocate(2 * pageBytes), address);
  reserved.reset();
  EXPECT_EQ(heap_->blocks().size(), 1u);

  reserved = *ReservedBlock::create(*heap_, 2);
  heap_->block(reserved->id()).backing = Backing::Planned;
  reserved.reset();
  EXPECT_EQ(heap_->blocks().size(), 2u);
  EXPECT_GT(heap_->blocks().back(), id);
}

// Past the budget it is host memory; the budget is never passed.
TEST_F(HeapTest, goesToTheHostBeyondTheBudget) {
  allocate(3 * pageBytes);
  const CUdeviceptr beyond = allocate(2 * pageBytes);
  EXPECT_EQ(blockOf(beyond).backing, Backing::Host);
  std::memset(reinterpret_cast<void *>(beyond), 1, 2 * pageBytes);
  EXPECT_EQ(host_->backedBytes(), 2 * pageBytes);
  EXPECT_LE(fake_.deviceFrames(), 4u);
}

// What a loop allocates beyond the budget in each turn takes the driver's time once. Nothing else of what is released
// is kept, and nothing where the limit has no room for it.
TEST_F(HeapTest, getsHostMemoryOfItsSizeAgain) {
  const std::uint64_t before = fake_.hostBackings();
  HostMemory host(driver_, 0, 16 * pageBytes, 6 * pageBytes);
  const auto create = [&](std::uint64_t pages) {
    const Expected<CUmemGenericAllocationHandle> made = host.createBacking(pages * pageBytes);
    EXPECT_TRUE(made);
    return made ? *made : 0;
  };
  const CUmemGenericAllocationHandle first = create(2), second = create(3);
  host.releaseBacking(first, 2 * pageBytes);
  host.releaseBacking(second, 3 * pageBytes);
  EXPECT_EQ(host.backedBytes(), 0u);
  EXPECT_EQ(fake_.hostBackings(), before + 2);
  EXPECT_EQ(create(3), second);
  const CUmemGenericAllocationHandle third = create(4); // another size
  host.releaseBacking(second, 3 * pageBytes);
  host.releaseBacking(third, 4 * pageBytes); // the oldest ones go
  EXPECT_EQ(fake_.hostBackings(), before + 1);
  EXPECT_EQ(create(4), third);
  host.releaseBacking(third, 4 * pageBytes);
  host.releaseBacking(create(14), 14 * pageBytes); // neither has room beside it, nor may it be kept
  EXPECT_EQ(fake_.hostBackings(), before);
  host.keepReleased(true);
  host.releaseBacking(create(14), 14 * pageBytes);
  EXPECT_EQ(fake_.hostBackings(), before + 1);
  const Expected<std::unique_ptr<PinnedPool>> pool = PinnedPool::create(driver_, host, 4 * pageBytes);
  ASSERT_TRUE(pool);
  EXPECT_EQ(fake_.hostBackings(), before) << "the limit holds for both kinds together";
  host.releaseBacking(create(2), 2 * pageBytes);
  host.giveBackReleased();
  EXPECT_EQ(fake_.hostBackings(), before);
}

// Host memory has a limit too; the message says how much is missing.
TEST_F(HeapTest, refusesWhatNeitherSideHasRoomFor) {
  const Expected<CUdeviceptr> address = heap_->allocate(65 * pageBytes, nullptr, "huge");
  ASSERT_FALSE(address);
  EXPECT_EQ(address.error().status, PUMPGRAPH_OUT_OF_HOST_MEMORY);
  EXPECT_NE(address.error().message.find("2.0 MiB missing"), std::string::npos) << address.error().message;
  EXPECT_EQ(heap_->stats().liveAllocations, 0u);
}

// A freed block serves the next allocation of its size on its stream, without any driver call.
TEST_F(HeapTest, reusesFreedBlocksOnTheirStream) {
  const CUstream one = fake_.createStream(), other = fake_.createStream();
  const CUdeviceptr first = allocate(pageBytes, one);
  ASSERT_TRUE(heap_->free(first, one));
  const std::uint64_t maps = fake_.callsOf("cuMemMap");
  EXPECT_NE(allocate(pageBytes, other), first);
  EXPECT_EQ(allocate(pageBytes, one), first);
  EXPECT_EQ(fake_.callsOf("cuMemMap"), maps + 1);
  ASSERT_TRUE(driver_.streamDestroy(one));
  ASSERT_TRUE(driver_.streamDestroy(other));
}

// In the order of frees or by address: a loop that frees in the order of its allocations has the same addresses in each
// round only by address.
TEST_F(HeapTest, takesTheLowestOfSeveralIfAsked) {
  for (const std::uint64_t size : {pageBytes, std::uint64_t{1000}}) {
    const CUdeviceptr low = allocate(size), high = allocate(size);
    ASSERT_LT(low, high);
    for (const bool lowest : {false, true}) {
      heap_->takeLowest(lowest);
      ASSERT_TRUE(heap_->free(low, nullptr));
      ASSERT_TRUE(heap_->free(high, nullptr));
      EXPECT_EQ(allocate(size), lowest ? low : high);
      EXPECT_EQ(allocate(size), lowest ? high : low);
    }
  }
}

// Cached memory is given up before an allocation goes to the host, and only after the device has finished with it.
TEST_F(HeapTest, givesUpCachedBlocksWhenShort) {
  const CUdeviceptr first = allocate(3 * pageBytes);
  ASSERT_TRUE(heap_->free(first, nullptr));
  const CUdeviceptr second = allocate(4 * pageBytes);
  EXPECT_EQ(blockOf(second).backing, Backing::Device);
  EXPECT_FALSE(fake_.isMapped(reinterpret_cast<void *>(first)));
  EXPECT_GE(fake_.callsOf("cuCtxSynchronize"), 1u);
}

// A loop that needs more than there is has the same addresses in each round, whichever stream asks.
TEST_F(HeapTest, freedBlocksKeepTheirAddressesIfAsked) {
  const CUstream stream = fake_.createStream();
  heap_->keepAddresses(true);
  const CUdeviceptr large = allocate(3 * pageBytes), small = allocate(1000);
  ASSERT_TRUE(heap_->free(large, stream));
  ASSERT_TRUE(heap_->free(small, nullptr));
  ASSERT_TRUE(heap_->flushCache());
  EXPECT_FALSE(fake_.isMapped(reinterpret_cast<void *>(large)));
  EXPECT_FALSE(fake_.isMapped(reinterpret_cast<void *>(small)));
  EXPECT_EQ(allocate(3 * pageBytes), large);
  EXPECT_EQ(allocate(1000), small);
  EXPECT_TRUE(fake_.isOnDevice(reinterpret_cast<void *>(large)));
  EXPECT_TRUE(fake_.isOnDevice(reinterpret_cast<void *>(small)));
  ASSERT_TRUE(driver_.streamDestroy(stream));
}

TEST_F(HeapTest, aWishedAddressIsTakenIfItIsFree) {
  heap_->takeLowest(true);
  const CUdeviceptr low = allocate(pageBytes), high = allocate(pageBytes);
  ASSERT_TRUE(heap_->free(low, nullptr));
  ASSERT_TRUE(heap_->free(high, nullptr));
  heap_->wishFor(high);
  EXPECT_EQ(allocate(pageBytes), high);
  EXPECT_EQ(allocate(pageBytes), low); // it is taken
}

// Small allocations share a page, are aligned, do not overlap, and reuse freed places of their size.
TEST_F(HeapTest, packsSmallAllocationsIntoPages) {
  std::set<CUdeviceptr> addresses;
  for (int i = 0; i < 100; ++i)
    addresses.insert(allocate(700));
  EXPECT_EQ(addresses.size(), 100u);
  EXPECT_EQ(fake_.deviceFrames(), 1u);
  for (const CUdeviceptr address : addresses)
    EXPECT_EQ(address % 512, 0u);
  EXPECT_GE(*std::next(addresses.begin()) - *addresses.begin(), 1024u);
  ASSERT_TRUE(heap_->free(*addresses.begin(), nullptr));
  EXPECT_EQ(allocate(600), *addresses.begin());
}

// Only starts of live allocations can be freed, and once.
TEST_F(HeapTest, refusesToFreeWhatIsNotLive) {
  const CUdeviceptr address = allocate(pageBytes);
  EXPECT_FALSE(heap_->free(address + 512, nullptr));
  EXPECT_FALSE(heap_->free(0x1234, nullptr));
  EXPECT_TRUE(heap_->free(address, nullptr));
  const Status twice = heap_->free(address, nullptr);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().status, PUMPGRAPH_INVALID_ARGUMENT);
}

// Pointers one past the end and a little before the start still belong to the block, and to no other.
TEST_F(HeapTest, findsPointersIntoGuards) {
  const CUdeviceptr first = allocate(pageBytes), second = allocate(pageBytes);
  EXPECT_EQ(heap_->find(first + pageBytes)->block, heap_->find(first)->block);
  EXPECT_EQ(heap_->find(second - 8)->block, heap_->find(second)->block);
  EXPECT_EQ(heap_->find(second - 8)->offset, -8);
  EXPECT_NE(heap_->find(first)->block, heap_->find(second)->block);
  EXPECT_FALSE(heap_->find(0));
  EXPECT_FALSE(heap_->find(second + 100 * pageBytes));
}

// What a dead allocation leaves in a word is no pointer.
TEST_F(HeapTest, doesNotFindTheDead) {
  const CUdeviceptr address = allocate(pageBytes);
  ASSERT_TRUE(heap_->free(address, nullptr));
  EXPECT_FALSE(heap_->find(address));
}

// During a capture there are addresses only, never used twice; a frame stands in for all memory, so that the driver
// takes them for device memory.
TEST_F(HeapTest, givesAddressesDuringCapture) {
  heap_->beginCapture();
  std::set<CUdeviceptr> large, small;
  for (int i = 0; i < 10; ++i) {
    large.insert(allocate(pageBytes));
    small.insert(allocate(100));
    ASSERT_TRUE(heap_->free(*large.rbegin(), nullptr));
    ASSERT_TRUE(heap_->free(*small.rbegin(), nullptr));
  }
  heap_->endCapture();
  EXPECT_EQ(large.size(), 10u);
  EXPECT_EQ(small.size(), 10u);
  EXPECT_EQ(fake_.deviceFrames(), 1u);
  EXPECT_EQ(frames_->created(), 0u);
  EXPECT_TRUE(fake_.isMapped(reinterpret_cast<void *>(*large.begin())));
  EXPECT_EQ(blockOf(*large.begin()).backing, Backing::StandIn);
  EXPECT_EQ(heap_->captured().size(), 20u);
  EXPECT_TRUE(heap_->find(*large.begin())); // freed in the capture: its graph uses it
  heap_->dropCapture();
  EXPECT_FALSE(heap_->find(*large.begin()));
}

// Of 1, 2, 4 pages and so on, as far as the budget has room for wide ones.
TEST_F(HeapTest, mapsFewStandIns) {
  for (const std::uint64_t budget : {0, 1, 2, 5, 6, 13, 30, 100}) {
    heap_.reset();
    frames_.reset();
    openMemory(budget);
    heap_->beginCapture();
    const std::uint64_t before = fake_.callsOf("cuMemMap");
    const CUdeviceptr block = allocate(37 * pageBytes);
    EXPECT_TRUE(fake_.isMapped(reinterpret_cast<void *>(block + 37 * pageBytes - 1)));
    const std::uint64_t maps = fake_.callsOf("cuMemMap") - before;
    EXPECT_EQ(maps, budget < 2 ? 37u : budget < 6 ? 19u : budget < 14 ? 10u : budget < 30 ? 6u : 4u) << budget;
    EXPECT_LE(frames_->created(), budget);
    EXPECT_EQ(fake_.deviceFrames(), frames_->created() + 1);
    heap_->endCapture();

    ASSERT_TRUE(heap_->narrowStandIns());
    EXPECT_EQ(frames_->available(), budget) << "as long as nobody adopts it";
    EXPECT_TRUE(fake_.isMapped(reinterpret_cast<void *>(block)));
    std::vector<BlockId> blocks;
    ASSERT_TRUE(heap_->takeStandInsAway(blocks));
    EXPECT_EQ(blocks, std::vector{heap_->find(block)->block});
    EXPECT_FALSE(fake_.isMapped(reinterpret_cast<void *>(block)));
    EXPECT_EQ(frames_->available(), budget) << "wide ones are frames again";
    EXPECT_EQ(fake_.deviceFrames(), 1u);
    heap_->giveStandInsBack(blocks);
    EXPECT_TRUE(fake_.isMapped(reinterpret_cast<void *>(block)));
    heap_->dropCapture();
    ASSERT_TRUE(heap_->free(block, nullptr));
    EXPECT_EQ(frames_->available(), budget);
  }
}

// Frames that are free make room for them, and frames that are not stay.
TEST_F(HeapTest, standInsLeaveFramesAlone) {
  const CUdeviceptr held = allocate(pageBytes), freed = allocate(3 * pageBytes);
  EXPECT_EQ(frames_->created(), 4u); // all there may be
  ASSERT_TRUE(heap_->free(freed, nullptr));
  ASSERT_TRUE(heap_->flushCache());
  heap_->beginCapture();
  allocate(3 * pageBytes);
  EXPECT_EQ(fake_.deviceFrames(), 1u + 4u);
  EXPECT_EQ(frames_->created(), 4u);
  EXPECT_EQ(blockOf(held).backing, Backing::Device);
  heap_->endCapture();
  heap_->dropCapture();
}

// An allocation freed during a capture stays until the capture is dropped; so does one freed before the adoption.
TEST_F(HeapTest, keepsWhatACaptureMayUse) {
  const CUdeviceptr during = allocate(pageBytes), after = allocate(pageBytes);
  heap_->beginCapture();
  ASSERT_TRUE(heap_->free(during, nullptr));
  heap_->endCapture();
  ASSERT_TRUE(heap_->free(after, nullptr));
  EXPECT_NE(allocate(pageBytes), during);
  EXPECT_TRUE(heap_->find(during) && heap_->find(after));
  heap_->dropCapture();
  EXPECT_EQ(std::set<CUdeviceptr>({allocate(pageBytes), allocate(pageBytes)}), std::set<CUdeviceptr>({during, after}));
}

// A shared page whose members all died in the capture has no live member, but the graph to be adopted uses it.
TEST_F(HeapTest, givesUpNothingThatACaptureMayUse) {
  heap_->beginCapture();
  const CUdeviceptr dead = allocate(100);
  ASSERT_TRUE(heap_->free(dead, nullptr));
  heap_->endCapture();
  ASSERT_TRUE(heap_->back(blockOf(dead)));
  ASSERT_TRUE(heap_->flushCache());
  EXPECT_TRUE(heap_->find(dead));
  heap_->dropCapture();
}

// What no node touches is given up before its step is; whoever goes through the capture's allocations later finds
// others.
TEST_F(HeapTest, givesUpWhatAStepDoesNotUse) {
  heap_->beginCapture();
  const CUdeviceptr used = allocate(pageBytes), unused = allocate(pageBytes), cached = allocate(pageBytes);
  for (const CUdeviceptr address : {used, unused, cached})
    ASSERT_TRUE(heap_->free(address, nullptr));
  heap_->endCapture();
  ASSERT_TRUE(heap_->back(blockOf(cached)));
  const BlockId kept = blockOf(used).id;
  heap_->recycleUnused({kept});
  ASSERT_TRUE(heap_->flushCache());
  EXPECT_FALSE(heap_->find(unused));
  EXPECT_FALSE(heap_->find(cached));
  ASSERT_EQ(heap_->captured().size(), 1u);
  EXPECT_EQ(heap_->captured().front().block, kept);
  heap_->dropCapture();
}

// What is allocated after the capture's end is none of the capture's business, and is reused as ever.
TEST_F(HeapTest, reusesWhatIsYoungerThanTheCapture) {
  heap_->beginCapture();
  heap_->endCapture();
  const CUdeviceptr address = allocate(pageBytes);
  ASSERT_TRUE(heap_->free(address, nullptr));
  EXPECT_EQ(allocate(pageBytes), address);
}

// A block that a step holds survives its free, and nothing new moves into its page.
TEST_F(HeapTest, retainsBlocksOfSteps) {
  const CUdeviceptr address = allocate(600);
  Block &block = blockOf(address);
  heap_->retain(block);
  ASSERT_TRUE(heap_->free(address, nullptr));
  EXPECT_NE(heap_->find(allocate(600))->block, block.id);
  const BlockId id = block.id;
  heap_->release(block);
  for (const BlockId other : heap_->blocks())
    EXPECT_NE(other, id);
}

// A mapping that fails halfway leaves nothing mapped, and the frames are free again.
TEST_F(HeapTest, undoesAMappingThatFails) {
  fake_.failCall("cuMemMap", 2, CUDA_ERROR_INVALID_VALUE);
  const Expected<CUdeviceptr> address = heap_->allocate(3 * pageBytes, nullptr, "unlucky");
  ASSERT_FALSE(address);
  EXPECT_NE(address.error().message.find("cuMemMap: CUDA_ERROR_INVALID_VALUE"), std::string::npos)
      << address.error().message;
  EXPECT_EQ(frames_->available(), 4u);
  EXPECT_EQ(blockOf(allocate(4 * pageBytes)).backing, Backing::Device);
}

// The hint is a wish: without it there are addresses all the same.
TEST(AddressSpaceTest, worksWithoutTheHint) {
  FakeDriver::Options options;
  options.grantsHint = false;
  FakeDriver fake(options);
  const Expected<std::unique_ptr<AddressSpace>> addresses = AddressSpace::reserve(*fake.table());
  ASSERT_TRUE(addresses);
  EXPECT_TRUE((*addresses)->carve(3));
}

// Addresses that were given back are used again when there are no fresh ones, joined with their neighbours.
TEST(AddressSpaceTest, reusesReturnedAddressesLast) {
  FakeDriver fake;
  const std::unique_ptr<AddressSpace> addresses = std::move(*AddressSpace::reserve(*fake.table()));
  const CUdeviceptr first = *addresses->carve(5), second = *addresses->carve(5);
  addresses->giveBack(first, 5);
  addresses->giveBack(second, 5);
  EXPECT_GT(*addresses->carve(5), second);
  // All fresh addresses: large pieces, then pieces that just do not fit into the hole.
  while (addresses->carve(1 << 14))
    continue;
  while (addresses->carve(13))
    continue;
  const Expected<CUdeviceptr> joined = addresses->carve(12);
  ASSERT_TRUE(joined);
  EXPECT_EQ(*joined, first);
}

// In a capture that was rehearsed a freed block serves later allocations for its stream, if it is not half too large
// for them and the rehearsal did not keep them. Words then lead to the last of them; afterwards it is an ordinary
// block.
TEST_F(HeapTest, usesBlocksAgainInARehearsedCapture) {
  const CUstream one = fake_.createStream(), other = fake_.createStream();
  const LastNodes after = {reinterpret_cast<CUgraphNode>(1)};
  const auto next = [&](std::uint64_t pages, CUstream stream, const LastNodes &nodes) {
    return *heap_->allocate(pages * pageBytes, stream, "next", nodes);
  };
  heap_->beginCapture({{4 * pageBytes, false},
                       {2 * pageBytes, false},
                       {4 * pageBytes, false},
                       {4 * pageBytes, false},
                       {4 * pageBytes, true}});
  const CUdeviceptr first = next(4, one, {});
  ASSERT_TRUE(heap_->free(first, one));
  EXPECT_NE(next(2, one, after), first) << "half of it would be left over";
  EXPECT_NE(next(4, other, after), first) << "another stream";
  EXPECT_NE(next(4, one, {}), first) << "the stream is not being captured";
  EXPECT_NE(next(4, one, after), first) << "the rehearsal kept it";
  EXPECT_EQ(next(3, one, after), first);
  EXPECT_NE(next(3, one, after), first) << "it is taken";
  EXPECT_EQ(blockOf(first).members.size(), 2U);
  EXPECT_EQ(heap_->find(first)->member, 1U);
  EXPECT_EQ(blockOf(first).members[1].after, after);
  ASSERT_TRUE(heap_->free(first, one));
  EXPECT_FALSE(heap_->free(first, one));
  heap_->endCapture();
  heap_->dropCapture();
  heap_->beginCapture();
  const CUdeviceptr unrehearsed = next(4, one, {});
  ASSERT_TRUE(heap_->free(unrehearsed, one));
  EXPECT_NE(next(4, one, after), unrehearsed);
}

class FrontTest : public ::testing::Test {
protected:
  static constexpr std::uint64_t frontPages = 16;
  FakeDriver fake_;
  std::unique_ptr<AddressSpace> addresses_ = std::move(*AddressSpace::reserve(*fake_.table(), frontPages *pageBytes));
};

TEST_F(FrontTest, isFilledFirstAndAgain) {
  ASSERT_EQ(addresses_->frontBytes(), frontPages * pageBytes);
  EXPECT_TRUE(addresses_->isAllInFront());
  const CUdeviceptr first = *addresses_->carve(8), second = *addresses_->carve(4);
  EXPECT_LT(second - addresses_->base(), frontPages * pageBytes);
  EXPECT_TRUE(addresses_->isAllInFront());
  const CUdeviceptr behind = *addresses_->carve(1);
  EXPECT_GT(behind - addresses_->base(), frontPages * pageBytes);
  EXPECT_FALSE(addresses_->isAllInFront());
  addresses_->giveBack(first, 8);
  const CUdeviceptr again = *addresses_->carve(6);
  EXPECT_EQ(again, first);
  addresses_->giveBack(behind, 1);
  EXPECT_TRUE(addresses_->isAllInFront());
}

// A block on both sides of the front's end would be neither here nor there.
TEST_F(FrontTest, noHoleReachesBeyondItsEnd) {
  const CUdeviceptr last = *addresses_->carve(frontPages - 2), behind = *addresses_->carve(2);
  addresses_->giveBack(last, frontPages - 2);
  addresses_->giveBack(behind, 2);
  const CUdeviceptr wide = *addresses_->carve(frontPages);
  EXPECT_GE(wide - addresses_->base(), frontPages * pageBytes);
}

TEST_F(FrontTest, addressesComeFromItAloneOnceItIsGivenUp) {
  ASSERT_TRUE(addresses_->giveUpFront());
  EXPECT_TRUE(addresses_->carve(frontPages - 2));
  const Expected<CUdeviceptr> more = addresses_->carve(1);
  ASSERT_FALSE(more);
  EXPECT_NE(more.error().message.find("among 32.0 MiB"), std::string::npos) << more.error().message;
  ASSERT_TRUE(addresses_->takeFront());
  EXPECT_TRUE(addresses_->carve(1));
}

} // namespace
