// SPDX-License-Identifier: Apache-2.0
// Managed memory that is asked for once, within limits, and handed out by the same heap as all other.
#include "runtime/memory/ManagedArena.h"

#include "runtime/memory/Heap.h"
#include "test/unit/runtime/FakeDriver.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t arenaPages = 32;
constexpr std::uint64_t arenaBytes = arenaPages * pageBytes;

class ManagedArenaTest : public ::testing::Test {
protected:
  ManagedArenaTest() : fake_({.deviceBytes = 2 * arenaBytes}) {}

  std::string refusalOf(std::uint64_t bytes, const ManagedGuard &guard) {
    const Expected<std::unique_ptr<ManagedArena>> arena = ManagedArena::reserve(*fake_.table(), bytes, guard);
    return arena ? "" : arena.error().message;
  }

  FakeDriver fake_;
};

TEST_F(ManagedArenaTest, takesWholePagesAndGivesThemBack) {
  {
    const Expected<std::unique_ptr<ManagedArena>> arena =
        ManagedArena::reserve(*fake_.table(), arenaBytes - 1, {.limitBytes = arenaBytes});
    ASSERT_TRUE(arena) << arena.error().message;
    EXPECT_EQ((*arena)->bytes(), arenaBytes);
    EXPECT_EQ((*arena)->base() % pageBytes, 0U);
    EXPECT_EQ(fake_.managedBytes(), arenaBytes);
  }
  EXPECT_EQ(fake_.managedBytes(), 0U);
}

/// Mappings of the process that begin in the range.
int mappingsIn(CUdeviceptr base, std::uint64_t bytes) {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    const CUdeviceptr begin = std::stoull(line, nullptr, 16);
    found += base <= begin && begin < base + bytes;
  }
  return found;
}

// Each page can be made accessible to the processor without waiting for its neighbours.
TEST_F(ManagedArenaTest, isManyMappingsSideBySide) {
  const Expected<std::unique_ptr<ManagedArena>> arena =
      ManagedArena::reserve(*fake_.table(), arenaBytes, {.limitBytes = arenaBytes});
  ASSERT_TRUE(arena) << arena.error().message;
  EXPECT_EQ((*arena)->stripBytes(), pageBytes);
  EXPECT_EQ(mappingsIn((*arena)->base(), arenaBytes), static_cast<int>(arenaPages));
}

TEST_F(ManagedArenaTest, isRefusedBeyondTheLimit) {
  const std::string refusal = refusalOf(arenaBytes + 1, {.limitBytes = arenaBytes});
  EXPECT_NE(refusal.find("66.0 MiB exceeds the limit of 64.0 MiB"), std::string::npos) << refusal;
  EXPECT_EQ(fake_.callsOf("cuMemAllocManaged"), 0U);
}

// Whoever allows oversubscription says how much he wants all the same.
TEST_F(ManagedArenaTest, isRefusedBeyondTheLimitAlsoWhereOversubscriptionIsAllowed) {
  EXPECT_NE(refusalOf(arenaBytes + 1, {.limitBytes = arenaBytes, .allowOversubscription = true}), "");
}

TEST_F(ManagedArenaTest, isRefusedBeyondWhatTheDeviceHasFree) {
  const std::uint64_t tooMuch = 2 * arenaBytes + pageBytes;
  const std::string refusal = refusalOf(tooMuch, {.limitBytes = tooMuch});
  EXPECT_NE(refusal.find("oversubscribed"), std::string::npos) << refusal;
  EXPECT_EQ(fake_.callsOf("cuMemAllocManaged"), 0U);
}

TEST_F(ManagedArenaTest, isOversubscribedOnlyByName) {
  const std::uint64_t tooMuch = 2 * arenaBytes + pageBytes;
  EXPECT_EQ(refusalOf(tooMuch, {.limitBytes = tooMuch, .allowOversubscription = true}), "");
}

TEST_F(ManagedArenaTest, saysWhatTheDriverSays) {
  fake_.failCall("cuMemAllocManaged", 1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_NE(refusalOf(arenaBytes, {}).find("cuMemAllocManaged"), std::string::npos);
}

/// Addresses in use that are to become managed memory's.
class FrontArenaTest : public ManagedArenaTest {
protected:
  std::unique_ptr<AddressSpace> addresses_ = std::move(*AddressSpace::reserve(*fake_.table(), arenaBytes));
};

TEST_F(FrontArenaTest, managedMemoryTakesTheFrontsPlace) {
  const Expected<std::unique_ptr<ManagedArena>> arena =
      ManagedArena::reserveInFrontOf(*fake_.table(), *addresses_, {.limitBytes = arenaBytes});
  ASSERT_TRUE(arena) << arena.error().message;
  EXPECT_EQ((*arena)->base(), addresses_->base());
  EXPECT_EQ((*arena)->bytes(), arenaBytes);
}

TEST_F(FrontArenaTest, theGuardHoldsThereToo) {
  const Expected<std::unique_ptr<ManagedArena>> arena =
      ManagedArena::reserveInFrontOf(*fake_.table(), *addresses_, {.limitBytes = arenaBytes - pageBytes});
  ASSERT_FALSE(arena);
  EXPECT_NE(arena.error().message.find("exceeds the limit"), std::string::npos) << arena.error().message;
  EXPECT_TRUE(addresses_->carve(1));
}

// The heap of a managed session: memory is there at once, during a capture too, and nothing is mapped for it.
class ManagedHeapTest : public ManagedArenaTest {
protected:
  ManagedHeapTest()
      : arena_(std::move(*ManagedArena::reserve(*fake_.table(), arenaBytes, {}))),
        addresses_(AddressSpace::within(*fake_.table(), arena_->base(), arena_->bytes())), pool_(*fake_.table(), 0, 0),
        host_(*fake_.table(), 0, 0), mapper_(*fake_.table(), 0, pool_),
        heap_(*fake_.table(), *addresses_, pool_, host_, mapper_, true) {}

  void *allocate(std::uint64_t bytes) {
    const Expected<CUdeviceptr> address = heap_.allocate(bytes, nullptr, "buffer");
    return address ? reinterpret_cast<void *>(*address) : nullptr;
  }

  std::unique_ptr<ManagedArena> arena_;
  std::unique_ptr<AddressSpace> addresses_;
  FramePool pool_;
  HostMemory host_;
  PageMapper mapper_;
  Heap heap_;
};

TEST_F(ManagedHeapTest, hasMemoryBehindWhatIsAllocatedInACapture) {
  heap_.beginCapture();
  auto *captured = static_cast<char *>(allocate(3 * pageBytes));
  ASSERT_NE(captured, nullptr);
  captured[3 * pageBytes - 1] = 1;
  EXPECT_TRUE(heap_.block(heap_.find(reinterpret_cast<CUdeviceptr>(captured))->block).hasMemory());
  EXPECT_EQ(fake_.callsOf("cuMemMap"), 0U);
  EXPECT_EQ(fake_.callsOf("cuMemCreate"), 0U);
}

TEST_F(ManagedHeapTest, usesTheAddressesOfARehearsalAgain) {
  constexpr std::uint64_t most = (arenaPages - 2) * pageBytes; // all that guards leave
  heap_.beginCapture();
  void *first = allocate(most);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(allocate(pageBytes), nullptr) << "the arena is full";
  ASSERT_TRUE(heap_.free(reinterpret_cast<CUdeviceptr>(first), nullptr));
  heap_.endCapture();
  heap_.dropCapture();
  heap_.beginCapture();
  EXPECT_EQ(allocate(most), first);
}

} // namespace
