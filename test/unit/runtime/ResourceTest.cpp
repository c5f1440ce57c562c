// SPDX-License-Identifier: Apache-2.0
// A session as a memory resource of CCCL: its concepts, the order of streams, captures, and what is refused.
#include "pumpgraph/resource.hpp"
#include "test/unit/runtime/FakeSession.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace pumpgraph;
using namespace pumpgraph::literals;
using namespace pumpgraph::test;

namespace {

using cuda::mr::device_accessible;
#if CCCL_VERSION >= 3001000
static_assert(cuda::mr::synchronous_resource_with<Resource, device_accessible>);
static_assert(cuda::mr::resource_with<Resource, device_accessible>);
static_assert(!cuda::mr::resource_with<Resource, cuda::mr::host_accessible>);
using AnyResource = cuda::mr::any_resource<device_accessible>;
#else
static_assert(cuda::mr::resource_with<Resource, device_accessible>);
static_assert(cuda::mr::async_resource_with<Resource, device_accessible>);
static_assert(!cuda::mr::resource_with<Resource, cuda::mr::host_accessible>);
using AnyResource = cuda::mr::async_resource_ref<device_accessible>;
#endif
static_assert(std::is_nothrow_copy_constructible_v<OutOfMemory>); // or a throw could end the program

void *allocateAny(AnyResource &any, std::size_t bytes, cuda::stream_ref stream) {
#if CCCL_VERSION >= 3001000
  return any.allocate(stream, bytes, 256);
#else
  return any.allocate_async(bytes, 256, stream);
#endif
}

void freeAny(AnyResource &any, void *pointer, std::size_t bytes, cuda::stream_ref stream) {
#if CCCL_VERSION >= 3001000
  any.deallocate(stream, pointer, bytes, 256);
#else
  any.deallocate_async(pointer, bytes, 256, stream);
#endif
}

constexpr std::uint64_t pageBytes = 2_MiB, bytes = 3 * pageBytes;

/// A resource, and two streams of a driver whose work runs in an order drawn with `seed`; 0: at once.
class World {
public:
  explicit World(std::uint32_t seed = 0, std::uint64_t budgetPages = 16, std::uint64_t hostLimitBytes = 0)
      : memory(Resource(Session::own(makeQuickFakeSession(budgetPages * pageBytes, seed, hostLimitBytes)))),
        own(createFakeStream()), other(createFakeStream()) {}
  ~World() {
    memory.reset();
    destroyFakeDriver();
  }
  World(const World &) = delete;
  World &operator=(const World &) = delete;
  std::uint64_t allocations() const { return memory->session().statistics()->live_allocations; }

  std::optional<Resource> memory;
  pumpgraph_stream own, other;
};

TEST(Resource, servesWhateverTakesResources) {
  World world;
  AnyResource any = *world.memory;
  void *first = allocateAny(any, bytes, world.own);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % Resource::largestAlignment, 0u);
  freeAny(any, first, bytes, world.own);
  EXPECT_EQ(allocateAny(any, bytes, world.own), first); // the order of the stream
  freeAny(any, first, bytes, world.own);
  EXPECT_EQ(world.allocations(), 0u);
}

// Of 0 bytes there is an address, for CUB only tells a size where it gets none; NULL is freed as nothing.
TEST(Resource, sizesAndAlignments) {
  World world;
  void *nothing = world.memory->allocate(world.own, 0);
  ASSERT_NE(nothing, nullptr);
  world.memory->deallocate(world.own, nothing, 0);
  world.memory->deallocate_sync(nullptr, 0);
  for (const std::size_t alignment : {1, 2, 256, 512})
    world.memory->deallocate_sync(world.memory->allocate_sync(1, alignment), 1, alignment);
  for (const std::size_t alignment : {0, 3, 1024})
    EXPECT_THROW((void)world.memory->allocate(world.own, 1, alignment), ResourceError) << alignment;
  auto doubles = world.memory->allocator<double>(world.own);
  EXPECT_THROW((void)doubles.allocate(SIZE_MAX / 4), std::bad_array_new_length); // the product would be small
  EXPECT_EQ(world.allocations(), 0u);
}

// A lack of memory is a std::bad_alloc with the reason; the resource goes on.
TEST(Resource, runsOutOfMemory) {
  World world(0, 16, 16 * pageBytes);
  try {
    (void)world.memory->allocate(world.own, 64 * pageBytes);
    FAIL() << "there is no such memory";
  } catch (const std::bad_alloc &caught) {
    const auto &shortage = dynamic_cast<const OutOfMemory &>(caught);
    EXPECT_EQ(shortage.code(), PUMPGRAPH_OUT_OF_HOST_MEMORY);
    EXPECT_NE(std::string(shortage.what()).find("128.0 MiB"), std::string::npos) << shortage.what();
  }
  world.memory->deallocate(world.own, world.memory->allocate(world.own, pageBytes), pageBytes);
}

// Memory that one stream has freed is no other stream's, whose work may come ahead of that stream's.
TEST(Resource, keepsStreamsApart) {
  World world;
  void *first = world.memory->allocate(world.own, bytes);
  world.memory->deallocate(world.own, first, bytes);
  EXPECT_NE(world.memory->allocate(world.other, bytes), first);
  void *second = world.memory->allocate(world.other, bytes);
  world.memory->deallocate(world.own, second, bytes); // freed in the order of another stream: that one's from now on
  EXPECT_NE(world.memory->allocate(world.other, bytes), second);
  EXPECT_EQ(world.memory->allocate(world.own, bytes), second);
}

/// A copy on `other` reads memory that is freed without a stream, and whose successor is written on `own`. Whether it
/// read its own values. `isOrdered`: freed as deallocate_sync() does it, which waits.
bool readsItsOwn(std::uint32_t seed, bool isOrdered) {
  World world(seed);
  Resource &memory = *world.memory;
  void *read = memory.allocate_sync(bytes), *first = memory.allocate_sync(bytes);
  fillOn(world.other, first, 1, bytes);
  copyOn(world.other, read, first, bytes);
  if (isOrdered)
    memory.deallocate_sync(first, bytes);
  else
    EXPECT_EQ(pumpgraph_free(memory.session().handle(), first, cudaStreamLegacy, nullptr), PUMPGRAPH_OK);
  void *second = memory.allocate_sync(bytes);
  EXPECT_EQ(second, first);
  fillOn(world.own, second, 2, bytes);
  waitForFakeStream(world.own);
  waitForFakeStream(world.other);
  return *static_cast<char *>(read) == 1;
}

TEST(Resource, synchronousFreesWait) {
  int wrong = 0;
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    EXPECT_TRUE(readsItsOwn(seed, true)) << "seed " << seed;
    wrong += readsItsOwn(seed, false) ? 0 : 1;
  }
  EXPECT_GT(wrong, 0); // or the order of work would show nothing
}

// A synchronous allocation is for any stream at once: what the default stream has freed may still be in use there.
TEST(Resource, synchronousMemoryIsNoStreams) {
  World world;
  for (const pumpgraph_stream stream : {pumpgraph_stream{nullptr}, pumpgraph_stream{cudaStreamLegacy}}) {
    void *freed = world.memory->allocate(stream, bytes);
    world.memory->deallocate(stream, freed, bytes);
    void *synchronous = world.memory->allocate_sync(bytes);
    EXPECT_NE(synchronous, freed);
    EXPECT_EQ(world.memory->allocate(stream, bytes), freed);
    world.memory->deallocate_sync(freed, bytes);
    world.memory->deallocate_sync(synchronous, bytes);
    EXPECT_EQ(world.allocations(), 0u);
    ASSERT_EQ(pumpgraph_empty_cache(world.memory->session().handle(), nullptr), PUMPGRAPH_OK);
  }
}

// Its handle is the same in each thread, and its stream is not: what one thread frees another would write at once.
TEST(Resource, refusesThePerThreadStream) {
  World world;
  try {
    (void)world.memory->allocate(cudaStreamPerThread, bytes);
    FAIL() << "it is refused";
  } catch (const ResourceError &refused) {
    EXPECT_EQ(refused.code(), PUMPGRAPH_INVALID_ARGUMENT);
    EXPECT_NE(std::string(refused.what()).find("per-thread default stream"), std::string::npos);
  }
  void *pointer = world.memory->allocate(world.own, bytes);
  world.memory->deallocate(cudaStreamPerThread, pointer, bytes); // waits, as nothing else would order it
  EXPECT_EQ(world.allocations(), 0u);
  EXPECT_NE(world.memory->allocate(world.own, bytes), pointer);
}

// Freed inside a capture, with a stream or without, memory is the step's: nothing is waited for, and no other memory of
// the step lies there.
TEST(Resource, isUsedInCaptures) {
  World world;
  Resource &memory = *world.memory;
  auto *counter = static_cast<std::uint64_t *>(memory.allocate_sync(bytes));
  *counter = 40;
  ASSERT_EQ(pumpgraph_declare_private(memory.session().handle(), counter, nullptr), PUMPGRAPH_OK);
  Session session = memory.session();
  std::vector<void *> temporaries;
  int waits = 0;
  const auto record = [&](pumpgraph_stream stream) -> Status {
    temporaries.clear();
    failFakeWait(1);
    std::uint64_t *last = counter;
    for (int i = 0; i < 6; ++i) {
      auto *next =
          static_cast<std::uint64_t *>(i % 2 == 0 ? memory.allocate(stream, bytes) : memory.allocate_sync(bytes));
      launchSuccessor(stream, next, last);
      if (last != counter) {
        if (i % 2 == 0)
          memory.deallocate_sync(last, bytes);
        else
          memory.deallocate(stream, last, bytes);
      }
      temporaries.push_back(last = next);
    }
    launchSuccessor(stream, counter, last);
    memory.deallocate_sync(last, bytes);
    waits += stopFailingFakeWait() ? 0 : 1;
    return {};
  };
  Expected<Step> step = session.capture(record, {.name = "step"});
  ASSERT_TRUE(step) << step.error().message;
  EXPECT_EQ(waits, 0);
  EXPECT_EQ(std::set<void *>(temporaries.begin(), temporaries.end()).size(), 6u);
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(step->replay(nullptr));
  ASSERT_EQ(pumpgraph_map(session.handle(), counter, nullptr), PUMPGRAPH_OK);
  EXPECT_EQ(*counter, 40u + 3 * 7);
  EXPECT_EQ(pumpgraph_unmap(session.handle(), counter, nullptr), PUMPGRAPH_OK);
}

// What is captured by the program itself keeps its memory: freed and given to others it would be written by both.
TEST(Resource, isUsedInGraphsOfTheProgram) {
  World world;
  Resource &memory = *world.memory;
  beginFakeCapture(world.own);
  void *captured = memory.allocate(world.own, bytes);
  memory.deallocate(world.own, captured, bytes);
  const pumpgraph_cuda_graph graph = endFakeCapture(world.own);
  EXPECT_NE(memory.allocate(world.own, bytes), captured);
  EXPECT_NE(memory.allocate_sync(bytes), captured);
  destroyFakeGraph(graph);
}

// The same of memory from before such a capture, which the graph may have been given: it is free with the graph.
TEST(Resource, freesInGraphsOfTheProgram) {
  World world;
  Resource &memory = *world.memory;
  void *before = memory.allocate(world.own, bytes);
  beginFakeCapture(world.own);
  launchFill(world.own, before, 1, bytes);
  memory.deallocate(world.own, before, bytes);
  const pumpgraph_cuda_graph graph = endFakeCapture(world.own);
  void *meanwhile = memory.allocate(world.own, bytes);
  EXPECT_NE(meanwhile, before);
  void *freed = memory.allocate(world.own, bytes);
  memory.deallocate(world.own, freed, bytes);
  EXPECT_EQ(memory.allocate(world.own, bytes), freed); // only what is freed in a capture is kept
  destroyFakeGraph(graph);
  EXPECT_EQ(memory.allocate(world.own, bytes), before);
}

// Where the device cannot be waited for, as during another capture, memory stays allocated rather than being reused.
TEST(Resource, keepsWhatItCannotFree) {
  World world;
  std::string told;
  pumpgraph_set_message_callback(
      PUMPGRAPH_MESSAGE_ERROR, [](int32_t, const char *text, void *to) { *static_cast<std::string *>(to) += text; },
      &told, nullptr);
  void *pointer = world.memory->allocate_sync(bytes);
  failFakeWait(1);
  world.memory->deallocate_sync(pointer, bytes);
  EXPECT_EQ(world.allocations(), 1u);
  EXPECT_NE(world.memory->allocate_sync(bytes), pointer);
  world.memory->deallocate(world.own, &told, 8);                            // somebody else's
  (void)pumpgraph_keep_freed(world.memory->session().handle(), 0, nullptr); // hands messages on
  EXPECT_NE(told.find("stays allocated: waiting before memory is freed"), std::string::npos) << told;
  EXPECT_NE(told.find("is not the start of a live allocation"), std::string::npos) << told;
  pumpgraph_set_message_callback(PUMPGRAPH_MESSAGE_WARNING, nullptr, nullptr, nullptr);
}

// The session lives as long as a resource of it, and resources are equal by their session.
TEST(Resource, holdsItsSession) {
  World world;
  std::optional<Session> session = Session::own(makeAnotherFakeSession(16 * pageBytes));
  Resource first(*session), second(*session);
  EXPECT_TRUE(first == second);
  EXPECT_TRUE(first != *world.memory);
  EXPECT_FALSE(first.allocator(world.own) == first.allocator(world.other));
  EXPECT_TRUE(first.allocator(world.own) == second.allocator<int>(world.own));
  session.reset();
  void *pointer = first.allocate(world.own, bytes);
  static_cast<char *>(pointer)[bytes - 1] = 1;
  second.deallocate(world.own, pointer, bytes);
  EXPECT_EQ(second.session().statistics()->live_allocations, 0u);
}

TEST(Resource, servesThreads) {
  World world;
  std::vector<std::thread> threads;
  for (const pumpgraph_stream stream : {world.own, world.other, pumpgraph_stream{nullptr}})
    threads.emplace_back([&world, stream] {
      std::vector<std::uint64_t, ResourceAllocator<std::uint64_t>> words(
          world.memory->allocator<std::uint64_t>(stream));
      for (std::uint64_t i = 0; i < 5000; ++i)
        words.push_back(i);
      for (std::uint64_t i = 0; i < 5000; ++i)
        ASSERT_EQ(words[i], i);
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(world.allocations(), 0u);
}

} // namespace
