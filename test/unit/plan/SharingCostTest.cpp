// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/allocate/SharingCost.h"

#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

/// Ten nodes of 10 us; uses are written down by hand.
class SharingCostTest : public testing::Test {
protected:
  SharingCostTest() : timeline_(tenNodes()), cost_(timeline_, 0) {}

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
  static SharingCost::Tenant tenant(const std::vector<Use> &uses, bool hostCurrent) {
    return {uses, false, false, true, hostCurrent, false, false, prices};
  }
  static SharingCost::Tenant newcomer(const std::vector<Use> &uses) {
    return {uses, false, false, false, true, true, false, prices};
  }

  std::optional<double> play(std::vector<SharingCost::Tenant> tenants, std::size_t occupant) {
    return cost_.play(tenants, occupant, 0, 9);
  }

  static constexpr SharingCost::Prices prices{3, 5};
  Timeline timeline_;
  SharingCost cost_;
};

TEST_F(SharingCostTest, AStayCostsNothing) {
  const std::vector<Use> uses = reads({1, 5});
  EXPECT_DOUBLE_EQ(*play({tenant(uses, false)}, 0), 0);
}

TEST_F(SharingCostTest, ANewcomerWithinAGapCostsOneTripOfTheOldTenant) {
  const std::vector<Use> old = reads({8}), young = reads({2, 4});
  EXPECT_DOUBLE_EQ(*play({tenant(old, false), newcomer(young)}, 0), 3 + 5);
}

TEST_F(SharingCostTest, ATripThatWasChosenBeforeCostsNothing) {
  const std::vector<Use> old = reads({8}), young = reads({2, 4});
  const std::vector<std::uint8_t> leaves = {1}, stays = {0};
  SharingCost::Tenant leaving = tenant(old, false);
  leaving.leaves = leaves;
  EXPECT_DOUBLE_EQ(*play({leaving, newcomer(young)}, 0), 0);
  leaving.leaves = stays;
  EXPECT_DOUBLE_EQ(*play({leaving, newcomer(young)}, 0), 3 + 5);
}

TEST_F(SharingCostTest, OnlyTheChosenTripIsFree) {
  const std::vector<Use> old = reads({3, 8}), young = reads({2, 4});
  const std::vector<std::uint8_t> leaves = {1, 0};
  SharingCost::Tenant leaving = tenant(old, false);
  leaving.leaves = leaves;
  EXPECT_DOUBLE_EQ(*play({leaving, newcomer(young)}, 0), 5); // back at node 8; its host copy is still good
}

TEST_F(SharingCostTest, ACleanTenantGoesForNothing) {
  const std::vector<Use> old = reads({8}), young = reads({2, 4});
  EXPECT_DOUBLE_EQ(*play({tenant(old, true), newcomer(young)}, 0), 5);
}

TEST_F(SharingCostTest, TakingTurnsCostsATripEachTime) {
  const std::vector<Use> old = reads({3, 5}), young = reads({2, 4, 6});
  // Out 3, in 5; the newcomer has no value, which needs no trip; in 5 again.
  EXPECT_DOUBLE_EQ(*play({tenant(old, false), newcomer(young)}, 0), 3 + 5 + 5);
}

// In managed memory there is no host copy left once a page has come.
TEST_F(SharingCostTest, TakingTurnsCostsBothWaysWhereNoHostCopyStays) {
  const std::vector<Use> old = reads({3, 5}), young = reads({2, 4, 6});
  SharingCost::Tenant moving = tenant(old, false);
  moving.leavesClean = false;
  EXPECT_DOUBLE_EQ(*play({moving, newcomer(young)}, 0), 2 * (3 + 5));
}

TEST_F(SharingCostTest, AMirroredTenantIsSavedOnceAndThenGoesForNothing) {
  Use write = reads({3}).front();
  write.writes = true;
  const std::vector<Use> old = {write}, young = reads({5});
  SharingCost::Tenant mirrored = tenant(old, true);
  mirrored.returnsAtBoundary = mirrored.mustSurvive = mirrored.isMirrored = true;
  const std::optional<double> alone = cost_.play(std::vector{mirrored}, 0, 0, 10);
  EXPECT_DOUBLE_EQ(*alone, 3);
  // The newcomer has no value; the other one has to come back for the boundary.
  EXPECT_DOUBLE_EQ(*cost_.play(std::vector{mirrored, newcomer(young)}, 0, 0, 10), 3 + 5);
}

TEST_F(SharingCostTest, EachTenantHasItsPrice) {
  const std::vector<Use> old = reads({8}), young = reads({2, 4});
  SharingCost::Tenant small = tenant(old, false);
  small.prices = {1, 2};
  EXPECT_DOUBLE_EQ(*play({small, newcomer(young)}, 0), 1 + 2);
}

TEST_F(SharingCostTest, TwoThatMeetCannotShare) {
  const std::vector<Use> old = reads({4}), young = reads({2, 4});
  EXPECT_FALSE(play({tenant(old, false), newcomer(young)}, 0));
}

TEST_F(SharingCostTest, LittleTimeCostsMoreThanMuch) {
  SharingCost cost(timeline_, 1);
  const auto shared = [&](const std::vector<Use> &old, const std::vector<Use> &young) {
    return *cost.play(std::vector{tenant(old, false), newcomer(young)}, 0, 0, 9);
  };
  const std::vector<Use> soon = reads({5}), late = reads({9}), young = reads({4});
  EXPECT_GT(shared(soon, young), shared(late, young));
}

} // namespace
} // namespace pumpgraph
