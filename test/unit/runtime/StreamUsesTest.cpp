// SPDX-License-Identifier: Apache-2.0
// Memory that is freed while another stream may still use it: what comes on its own stream next waits for that.
#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t bytes = 3 * pageBytes;

/// Another stream reads an allocation while that is freed, and its memory serves the next one. Whether it read the
/// values of its own.
bool readsItsOwn(std::uint32_t seed, bool isSaid) {
  FakeDriver fake({.deferringSeed = seed});
  Expected<std::unique_ptr<Session>> session = openSession(fake, 16, PUMPGRAPH_COMPILER_LIBRARY);
  EXPECT_TRUE(session) << messageOf(session);
  const Driver &driver = *fake.table();
  CUstream own = nullptr, other = nullptr;
  EXPECT_TRUE(driver.streamCreate(&own, CU_STREAM_NON_BLOCKING));
  EXPECT_TRUE(driver.streamCreate(&other, CU_STREAM_NON_BLOCKING));
  const auto fill = [&](void *target, unsigned char value) {
    EXPECT_TRUE(driver.memsetD8Async(reinterpret_cast<CUdeviceptr>(target), value, bytes, own));
  };

  void *first = *(*session)->allocate(bytes, own, "first");
  fill(first, 1);
  EXPECT_TRUE(driver.streamSynchronize(own));
  void *read = *(*session)->allocate(bytes, own, "read");
  EXPECT_TRUE(
      driver.memcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(read), reinterpret_cast<CUdeviceptr>(first), bytes, other));
  if (isSaid) {
    EXPECT_TRUE((*session)->recordStream(static_cast<char *>(first) + 64, other));
  }
  EXPECT_TRUE((*session)->free(first, own));
  void *second = *(*session)->allocate(bytes, own, "second");
  EXPECT_EQ(second, first);
  fill(second, 2);
  EXPECT_TRUE(driver.streamSynchronize(own));
  EXPECT_TRUE(driver.streamSynchronize(other));
  const bool isItsOwn = *static_cast<char *>(read) == 1;
  EXPECT_TRUE((*session)->free(second, own));
  EXPECT_TRUE((*session)->free(read, own));
  return isItsOwn;
}

TEST(StreamUses, freedMemoryWaitsForOtherStreams) {
  int wrong = 0;
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    EXPECT_TRUE(readsItsOwn(seed, true)) << "seed " << seed;
    wrong += readsItsOwn(seed, false) ? 0 : 1;
  }
  EXPECT_GT(wrong, 0); // or the order of work would show nothing
}

TEST(StreamUses, whatIsNotThereIsRefused) {
  FakeDriver fake;
  Expected<std::unique_ptr<Session>> session = openSession(fake, 16, PUMPGRAPH_COMPILER_LIBRARY);
  ASSERT_TRUE(session) << messageOf(session);
  void *pointer = *(*session)->allocate(bytes, nullptr, "gone");
  EXPECT_TRUE((*session)->free(pointer, nullptr));
  const Status refused = (*session)->recordStream(pointer, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, PUMPGRAPH_INVALID_ARGUMENT);
}

// An event would become part of the graph, or break its capture: the memory is freed once that is over.
TEST(StreamUses, duringACaptureOfTheProgramItWaits) {
  FakeDriver fake;
  Expected<std::unique_ptr<Session>> session = openSession(fake, 16, PUMPGRAPH_COMPILER_LIBRARY);
  ASSERT_TRUE(session) << messageOf(session);
  const Driver &driver = *fake.table();
  CUstream own = nullptr, other = nullptr;
  ASSERT_TRUE(driver.streamCreate(&own, CU_STREAM_NON_BLOCKING));
  ASSERT_TRUE(driver.streamCreate(&other, CU_STREAM_NON_BLOCKING));
  void *pointer = *(*session)->allocate(bytes, own, "used");
  ASSERT_TRUE((*session)->recordStream(pointer, other));
  ASSERT_TRUE(driver.streamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_TRUE((*session)->free(pointer, own));
  EXPECT_EQ((*session)->statistics().live.liveAllocations, 1u);
  CUgraph graph = nullptr;
  ASSERT_TRUE(driver.streamEndCapture(other, &graph));
  void *next = *(*session)->allocate(64, own, "next");
  EXPECT_TRUE((*session)->free(next, own));
  EXPECT_EQ((*session)->statistics().live.liveAllocations, 0u);
  EXPECT_TRUE(driver.graphDestroy(graph));
}

} // namespace
