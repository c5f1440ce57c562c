// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/TenancyCost.h"

#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

/// Ten nodes of 10 us; uses are written down by hand.
class TenancyCostTest : public testing::Test {
protected:
  TenancyCostTest() : timeline_(tenNodes()), cost_(timeline_, tuning_) { tuning_.slackWeight = 0; }

  static Description tenNodes() {
    test::SmallStep small;
    for (int i = 0; i < 10; ++i)
      small.kernel("k", 10, {});
    return small.step;
  }

  static std::vector<Use> reads(std::initializer_list<NodeIndex> nodes) {
    std::vector<Use> uses;
    for (NodeIndex node : nodes)
      uses.push_back({node, PieceIndex{}, false, true, false});
    return uses;
  }
  static TenancyCost::Tenant tenant(const std::vector<Use> &uses, bool hostCurrent) {
    return {uses, false, false, true, hostCurrent, false};
  }
  static TenancyCost::Tenant newcomer(const std::vector<Use> &uses) { return {uses, false, false, false, true, true}; }

  std::optional<double> play(std::vector<TenancyCost::Tenant> tenants, std::size_t occupant) {
    return cost_.play(tenants, occupant, {3, 5}, 0, 9);
  }

  Tuning tuning_;
  Timeline timeline_;
  TenancyCost cost_;
};

TEST_F(TenancyCostTest, AStayCostsNothing) {
  const std::vector<Use> uses = reads({1, 5});
  EXPECT_DOUBLE_EQ(*play({tenant(uses, false)}, 0), 0);
}

TEST_F(TenancyCostTest, ANewcomerWithinAGapCostsOneTripOfTheOldTenant) {
  const std::vector<Use> old = reads({8}), young = reads({2, 4});
  EXPECT_DOUBLE_EQ(*play({tenant(old, false), newcomer(young)}, 0), 3 + 5);
}

TEST_F(TenancyCostTest, ACleanTenantGoesForNothing) {
  const std::vector<Use> old = reads({8}), young = reads({2, 4});
  EXPECT_DOUBLE_EQ(*play({tenant(old, true), newcomer(young)}, 0), 5);
}

TEST_F(TenancyCostTest, TakingTurnsCostsATripEachTime) {
  const std::vector<Use> old = reads({3, 5}), young = reads({2, 4, 6});
  // Out 3, in 5; the newcomer has no value, which needs no trip; in 5 again.
  EXPECT_DOUBLE_EQ(*play({tenant(old, false), newcomer(young)}, 0), 3 + 5 + 5);
}

TEST_F(TenancyCostTest, TwoThatMeetCannotShare) {
  const std::vector<Use> old = reads({4}), young = reads({2, 4});
  EXPECT_FALSE(play({tenant(old, false), newcomer(young)}, 0));
}

TEST_F(TenancyCostTest, LittleTimeCostsMoreThanMuch) {
  tuning_.slackWeight = 1;
  const std::vector<Use> soon = reads({5}), late = reads({9}), young = reads({4});
  EXPECT_GT(*play({tenant(soon, false), newcomer(young)}, 0), *play({tenant(late, false), newcomer(young)}, 0));
}

} // namespace
} // namespace pumpgraph
