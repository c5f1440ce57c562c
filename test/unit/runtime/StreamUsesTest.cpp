// SPDX-License-Identifier: Apache-2.0
// Memory that is freed while another stream may still use it: what comes on its own stream next waits for that.
#include "test/unit/runtime/Program.h"

#include <gtest/gtest.h>

using namespace pumpgraph;
using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

constexpr std::uint64_t bytes = 3 * pageBytes;

/// A session, and two streams of a driver whose work runs in an order drawn with `seed`; 0: at once.
struct World {
  explicit World(std::uint32_t seed = 0) : fake({.deferringSeed = seed}), driver(*fake.table()) {
    Expected<std::unique_ptr<Session>> made = openSession(fake, 16, PUMPGRAPH_COMPILER_LIBRARY);
    EXPECT_TRUE(made) << messageOf(made);
    session = std::move(*made);
    EXPECT_TRUE(driver.streamCreate(&own, CU_STREAM_NON_BLOCKING));
    EXPECT_TRUE(driver.streamCreate(&other, CU_STREAM_NON_BLOCKING));
  }
  void *allocate(std::uint64_t size = bytes) { return *session->allocate(size, own, "buffer"); }
  void free(void *pointer) { EXPECT_TRUE(session->free(pointer, own)); }
  std::uint64_t allocations() const { return session->statistics().live.liveAllocations; }

  FakeDriver fake;
  const Driver &driver;
  std::unique_ptr<Session> session;
  CUstream own = nullptr, other = nullptr;
};

/// Another stream reads an allocation while that is freed, and its memory serves the next one. Whether it read the
/// values of its own.
bool readsItsOwn(std::uint32_t seed, bool isSaid) {
  World world(seed);
  const auto fill = [&](void *target, unsigned char value) {
    EXPECT_TRUE(world.driver.memsetD8Async(reinterpret_cast<CUdeviceptr>(target), value, bytes, world.own));
  };
  void *first = world.allocate(), *read = world.allocate();
  fill(first, 1);
  EXPECT_TRUE(world.driver.streamSynchronize(world.own));
  EXPECT_TRUE(world.driver.memcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(read), reinterpret_cast<CUdeviceptr>(first),
                                           bytes, world.other));
  if (isSaid) {
    EXPECT_TRUE(world.session->recordStream(static_cast<char *>(first) + 64, world.other));
  }
  world.free(first);
  void *second = world.allocate();
  EXPECT_EQ(second, first);
  fill(second, 2);
  EXPECT_TRUE(world.driver.streamSynchronize(world.own));
  EXPECT_TRUE(world.driver.streamSynchronize(world.other));
  return *static_cast<char *>(read) == 1;
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
  World world;
  void *pointer = world.allocate();
  world.free(pointer);
  const Status refused = world.session->recordStream(pointer, world.other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, PUMPGRAPH_INVALID_ARGUMENT);
}

// An event would become part of the graph, or break its capture: the memory is freed once that is over, by whichever
// call comes first.
TEST(StreamUses, duringACaptureOfTheProgramItWaits) {
  for (const bool allocates : {false, true}) {
    World world;
    void *used = world.allocate(), *besides = world.allocate(64);
    ASSERT_TRUE(world.session->recordStream(used, world.other));
    ASSERT_TRUE(world.driver.streamBeginCapture(world.other, CU_STREAM_CAPTURE_MODE_RELAXED));
    world.free(used);
    EXPECT_EQ(world.allocations(), 2u);
    CUgraph graph = nullptr;
    ASSERT_TRUE(world.driver.streamEndCapture(world.other, &graph));
    if (allocates)
      EXPECT_EQ(world.allocate(), used);
    else
      world.free(besides);
    EXPECT_EQ(world.allocations(), allocates ? 2u : 0u);
    EXPECT_TRUE(world.driver.graphDestroy(graph));
  }
}

/// As readsItsOwn(), but the memory is freed in a capture that is given up, and serves the next capture.
bool readsItsOwnAcrossACapture(std::uint32_t seed) {
  World world(seed);
  void *first = world.allocate(), *read = world.allocate();
  const auto address = [](void *pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  EXPECT_TRUE(world.driver.memsetD8Async(address(first), 1, bytes, world.own));
  EXPECT_TRUE(world.driver.streamSynchronize(world.own));
  EXPECT_TRUE(world.driver.memcpyDtoDAsync(address(read), address(first), bytes, world.other));
  EXPECT_TRUE(world.session->recordStream(first, world.other));
  EXPECT_TRUE(world.session->captureBegin());
  world.free(first);
  EXPECT_TRUE(world.session->captureEnd());
  EXPECT_TRUE(world.session->captureBegin()); // drops the one before
  EXPECT_TRUE(world.session->captureEnd());
  void *second = world.allocate();
  EXPECT_EQ(second, first);
  EXPECT_TRUE(world.driver.memsetD8Async(address(second), 2, bytes, world.own));
  EXPECT_TRUE(world.driver.streamSynchronize(world.own));
  EXPECT_TRUE(world.driver.streamSynchronize(world.other));
  return *static_cast<char *>(read) == 1;
}

TEST(StreamUses, aCaptureBeginsAfterWhatOtherStreamsUse) {
  for (std::uint32_t seed = 1; seed <= 40; ++seed)
    EXPECT_TRUE(readsItsOwnAcrossACapture(seed)) << "seed " << seed;
}

// torch.cuda.graph() begins the capture of the stream first. A blocking one leaves nothing to be asked of the legacy
// stream.
TEST(StreamUses, aCaptureThatHasBegunGoesOn) {
  for (const CUstream_flags kind : {CU_STREAM_NON_BLOCKING, CU_STREAM_DEFAULT}) {
    World world;
    CUstream captured = nullptr;
    ASSERT_TRUE(world.driver.streamCreate(&captured, kind));
    void *used = world.allocate();
    for (const CUstream stream : {world.other, captured, CUstream(nullptr)})
      ASSERT_TRUE(world.session->recordStream(used, stream));
    ASSERT_TRUE(world.driver.streamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_TRUE(world.session->captureBegin());
    EXPECT_TRUE(world.session->captureEnd());
    CUgraph graph = nullptr;
    EXPECT_TRUE(world.driver.streamEndCapture(captured, &graph));
    if (graph) {
      EXPECT_TRUE(world.driver.graphDestroy(graph));
    }
    EXPECT_TRUE(world.driver.streamDestroy(captured));
  }
}

// What autograd uses on another stream while a step is captured is the step's.
TEST(StreamUses, inACaptureOfOursTheGraphHasTheOrder) {
  World world;
  void *before = world.allocate();
  ASSERT_TRUE(world.session->recordStream(before, world.other));
  ASSERT_TRUE(world.session->captureBegin());
  void *inside = world.allocate();
  ASSERT_TRUE(world.session->recordStream(inside, world.other));
  world.free(inside);
  world.free(before);
  ASSERT_TRUE(world.session->captureEnd());
  EXPECT_EQ(world.allocations(), 0u);
}

} // namespace
