// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/DeadStack.h"

#include "test/unit/runtime/StackProbe.h"

#include <gtest/gtest.h>

#include <pthread.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <thread>

using namespace pumpgraph::runtime;
using namespace pumpgraph::runtime::test;

namespace {

// The next call does not find on the stack what the last one left there, on any thread.
TEST(DeadStackTest, clearsWhatCallsHaveLeft) {
  const auto compare = [] {
    leaveWords();
    EXPECT_GT(countWordsLeft(), leftWords / 4) << "the probe finds nothing even where nobody clears";
    leaveWords();
    clearDeadStack();
    EXPECT_EQ(countWordsLeft(), 0U);
  };
  compare();
  std::thread(compare).join();
}

// Variables of callers stay.
TEST(DeadStackTest, leavesVariablesAlone) {
  volatile std::uint64_t before[64];
  for (std::uint64_t i = 0; i < 64; ++i)
    before[i] = i * 0x9e3779b97f4a7c15;
  clearDeadStack();
  for (std::uint64_t i = 0; i < 64; ++i)
    EXPECT_EQ(before[i], i * 0x9e3779b97f4a7c15);
}

// A thread with less stack than would be cleared is not run off its end.
TEST(DeadStackTest, staysOnAShortStack) {
  for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{96} << 10, std::size_t{160} << 10}) {
    pthread_attr_t attributes;
    ASSERT_EQ(pthread_attr_init(&attributes), 0);
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
    pthread_t thread{};
    const auto clear = [](void *) -> void * {
      clearDeadStack();
      return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &attributes, clear, nullptr), 0);
    EXPECT_EQ(pthread_join(thread, nullptr), 0);
    pthread_attr_destroy(&attributes);
  }
}

// A coroutine's stack is not the thread's: nobody knows where it ends, so nothing is written below its frames. Here it
// is memory of this thread's stack, above that of the thread that runs the coroutine.
TEST(DeadStackTest, leavesOtherStacksAlone) {
  std::array<std::uint8_t, 2 * deadStackBytes> stack;
  stack.fill(0x5a);
  std::thread([&] {
    static ucontext_t outside, inside;
    ASSERT_EQ(getcontext(&inside), 0);
    inside.uc_stack.ss_sp = stack.data();
    inside.uc_stack.ss_size = stack.size();
    inside.uc_link = &outside;
    makecontext(&inside, [] { clearDeadStack(); }, 0);
    ASSERT_EQ(swapcontext(&outside, &inside), 0);
  }).join();
  const auto lowestTouched = std::find_if(stack.begin(), stack.end(), [](std::uint8_t byte) { return byte != 0x5a; });
  EXPECT_GT(lowestTouched - stack.begin(), static_cast<std::ptrdiff_t>(stack.size() - deadStackBytes / 4));
}

} // namespace
