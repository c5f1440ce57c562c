// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/PlanSearch.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

Candidate candidate(double totalUs, double movedUs, std::uint64_t hostBytes = 0) {
  Candidate result;
  result.schedule.totalUs = totalUs;
  result.movedUs = movedUs;
  result.hostBytes = hostBytes;
  return result;
}

// Ten of them are one that everybody would take.
TEST(IsBetter, SmallGainsCount) {
  EXPECT_TRUE(isBetter(candidate(99'990, 500), candidate(100'000, 500), Machine()));
  EXPECT_FALSE(isBetter(candidate(100'000, 500), candidate(100'000, 500), Machine()));
}

TEST(IsBetter, MovingLessIsWorthALittleTime) {
  EXPECT_TRUE(isBetter(candidate(100'010, 10'000), candidate(100'000, 20'000), Machine()));
  EXPECT_FALSE(isBetter(candidate(101'000, 10'000), candidate(100'000, 20'000), Machine()));
}

// Whoever goes on to what is better never comes back to where he was.
TEST(IsBetter, TradesDoNotAddUpToALoss) {
  Candidate best = candidate(100'000, 20'000);
  for (int step = 0; step < 100; ++step) {
    const Candidate next = candidate(best.schedule.totalUs + 50, best.movedUs - 100);
    if (isBetter(next, best, Machine()))
      best = next;
  }
  EXPECT_EQ(best.schedule.totalUs, 100'000);
}

TEST(IsBetter, HostMemoryHasToSuffice) {
  Machine machine;
  machine.hostBytes = 1000;
  EXPECT_TRUE(isBetter(candidate(200, 0, 1000), candidate(100, 0, 1001), machine));
  EXPECT_TRUE(isBetter(candidate(200, 0, 1001), candidate(100, 0, 1002), machine));
}

} // namespace
} // namespace pumpgraph
