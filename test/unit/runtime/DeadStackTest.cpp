// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/DeadStack.h"

#include "test/unit/runtime/StackProbe.h"

#include <gtest/gtest.h>

#include <pthread.h>

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

} // namespace
