// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/Evaluator.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

Evaluated plan(double totalUs, double movedUs, std::uint64_t hostBytes = 0) {
  Evaluated result;
  result.schedule.totalUs = totalUs;
  result.movedUs = movedUs;
  result.hostBytes = hostBytes;
  return result;
}

// Ten of them are one that everybody would take.
TEST(IsBetter, SmallGainsCount) {
  EXPECT_TRUE(isBetter(plan(99'990, 500), plan(100'000, 500), Machine()));
  EXPECT_FALSE(isBetter(plan(100'000, 500), plan(100'000, 500), Machine()));
}

TEST(IsBetter, MovingLessIsWorthALittleTime) {
  EXPECT_TRUE(isBetter(plan(100'010, 10'000), plan(100'000, 20'000), Machine()));
  EXPECT_FALSE(isBetter(plan(101'000, 10'000), plan(100'000, 20'000), Machine()));
}

// Whoever goes on to what is better never comes back to where he was.
TEST(IsBetter, TradesDoNotAddUpToALoss) {
  Evaluated best = plan(100'000, 20'000);
  for (int step = 0; step < 100; ++step) {
    const Evaluated next = plan(best.schedule.totalUs + 50, best.movedUs - 100);
    if (isBetter(next, best, Machine()))
      best = next;
  }
  EXPECT_EQ(best.schedule.totalUs, 100'000);
}

TEST(IsBetter, HostMemoryHasToSuffice) {
  Machine machine;
  machine.hostBytes = 1000;
  EXPECT_TRUE(isBetter(plan(200, 0, 1000), plan(100, 0, 1001), machine));
  EXPECT_TRUE(isBetter(plan(200, 0, 1001), plan(100, 0, 1002), machine));
}

} // namespace
} // namespace pumpgraph
