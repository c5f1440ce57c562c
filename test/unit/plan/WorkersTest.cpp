// SPDX-License-Identifier: Apache-2.0
// Jobs whose results nobody asks for any more, as where something was thrown in between.
#include "passes/plan/Workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

using namespace pumpgraph;

namespace {

TEST(Workers, aJobThatGoesAwayIsOver) {
  Workers workers(4);
  std::atomic<int> begun = 0, ended = 0;
  try {
    std::vector<Job<bool>> jobs;
    for (int i = 0; i < 16; ++i)
      jobs.push_back(workers.begin([&] {
        ++begun;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ++ended;
        return true;
      }));
    while (begun == 0)
      std::this_thread::yield();
    throw std::runtime_error("ahead of all results");
  } catch (const std::runtime_error &) {
    EXPECT_EQ(begun, ended);
  }
}

TEST(Workers, aJobThatTakesThePlaceOfAnotherEndsIt) {
  Workers workers(2);
  std::atomic<bool> isBegun = false, isOver = false;
  Job<bool> job = workers.begin([&] {
    isBegun = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return isOver = true;
  });
  while (!isBegun)
    std::this_thread::yield();
  job = Job<bool>([] { return false; });
  EXPECT_TRUE(isOver);
  EXPECT_FALSE(job.get());
}

} // namespace
