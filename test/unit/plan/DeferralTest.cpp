// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/schedule/Deferral.h"

#include "passes/analysis/Prediction.h"
#include "passes/plan/allocate/GivenBoundary.h"
#include "passes/plan/schedule/PlanWriter.h"
#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace pumpgraph {
namespace {

/// After a first node of 10 us come one that works and one at the end, with transfers between them that are written
/// down by hand.
class DeferralTest : public testing::Test {
protected:
  using Edges = std::vector<std::pair<DraftNode, DraftNode>>;

  explicit DeferralTest(double worksUs = 20) {
    first_ = small_.kernel("first", 10, {});
    works_ = small_.kernel("works", worksUs, {});
    last_ = small_.kernel("last", 10, {});
  }

  /// All pages of a new buffer, between two nodes.
  DraftNode transfer(NodeKind kind, std::uint64_t pages, DraftNode after, DraftNode before) {
    const BufferIndex buffer = small_.local("buffer", pages);
    const DraftNode node = static_cast<DraftNode>(small_.step.nodes.size() + transfers_.size());
    transfers_.push_back({kind, {buffer, 0, static_cast<std::uint32_t>(pages)}});
    edges_.push_back({after, node});
    edges_.push_back({node, before});
    return node;
  }
  DraftNode fetch(std::uint64_t pages, DraftNode after, DraftNode before) {
    return transfer(NodeKind::Prefetch, pages, after, before);
  }
  DraftNode evict(std::uint64_t pages, DraftNode after, DraftNode before) {
    return transfer(NodeKind::Evict, pages, after, before);
  }

  /// Who waits for whom, and what that makes of the step.
  void defer(const Machine &machine = test::smallMachine()) {
    const Timeline timeline(small_.step, 16 * test::smallPage, machine);
    const Order order(small_.step);
    const GivenBoundary given = givenBoundary(small_.step, timeline, nullptr, 99);
    const PlannerInput input{small_.step, timeline, order, machine, 99, given};
    Draft draft = *draftWithoutTransfers(input);
    draft.transfers = transfers_;
    draft.edges = edges_;
    const Schedule asIs = scheduleDraft(input, draft);
    const Draft deferring = deferTransfers(input, draft, asIs);
    const Schedule deferred = scheduleDraft(input, deferring);
    beforeUs_ = asIs.totalUs;
    afterUs_ = deferred.totalUs;
    plannedUs_ = predict(writePlan(input, deferring, deferred, 99 * test::smallPage), machine).totalUs;
    deferrals_.clear();
    for (const DraftEdge &edge : deferring.deferrals)
      deferrals_.push_back({edge.before, edge.after});
  }

  test::SmallStep small_;
  NodeIndex first_ = 0, works_ = 0, last_ = 0;
  std::vector<DraftTransfer> transfers_;
  std::vector<DraftEdge> edges_;
  Edges deferrals_;
  double beforeUs_ = 0, afterUs_ = 0, plannedUs_ = 0;
};

/// The node that works leaves no time for what would have to wait.
class ShortDeferralTest : public DeferralTest {
protected:
  ShortDeferralTest() : DeferralTest(5) {}
};

// Side by side they take 10 / 0.75 us each; one after the other 10, and the second one does so beside the node.
TEST_F(DeferralTest, AnEvictionWaitsForAFetchThatTheStepWaitsFor) {
  const DraftNode urgent = fetch(10, first_, works_), patient = evict(10, first_, last_);
  defer();
  EXPECT_EQ(deferrals_, (Edges{{urgent, patient}}));
  EXPECT_NEAR(beforeUs_, 10 + 10 / 0.75 + 20 + 10, 1e-9);
  EXPECT_NEAR(afterUs_, 10 + 10 + 20 + 10, 1e-9);
  EXPECT_NEAR(plannedUs_, afterUs_, 1e-9) << "the plan says so too";
}

TEST_F(DeferralTest, AFetchWaitsForAnEvictionThatTheStepWaitsFor) {
  const DraftNode patient = fetch(10, first_, last_), urgent = evict(10, first_, works_);
  defer();
  EXPECT_EQ(deferrals_, (Edges{{urgent, patient}}));
  EXPECT_NEAR(afterUs_, 50, 1e-9);
}

TEST_F(DeferralTest, TheLastOfARunIsWaitedForByAllThatHaveTheTime) {
  fetch(4, first_, works_);
  fetch(4, first_, works_);
  const DraftNode last = fetch(2, first_, works_), one = evict(3, first_, last_), two = evict(3, first_, last_);
  defer();
  EXPECT_EQ(deferrals_, (Edges{{last, one}, {last, two}}));
  EXPECT_NEAR(afterUs_, 50, 1e-9);
}

TEST_F(DeferralTest, OnlySoManyOfARunAreWaitedForAsThereIsTime) {
  fetch(9, first_, works_);
  const DraftNode second = fetch(6, first_, works_);
  fetch(6, first_, works_);
  const DraftNode patient = evict(20, first_, last_);
  defer();
  EXPECT_EQ(deferrals_, (Edges{{second, patient}}));
  EXPECT_LT(afterUs_, beforeUs_);
}

TEST_F(ShortDeferralTest, WhatHasNoTimeDoesNotWait) {
  fetch(10, first_, works_);
  evict(10, first_, last_);
  defer();
  EXPECT_EQ(deferrals_, Edges());
}

TEST_F(DeferralTest, NobodyWaitsForWhatTheStepDoesNotWaitFor) {
  fetch(5, first_, last_);
  evict(5, first_, last_);
  defer();
  EXPECT_EQ(deferrals_, Edges());
}

// Captured nodes start in their order. So what the first of two branches waits for must not wait for what comes after
// the second, although no edge says so.
TEST_F(DeferralTest, NodesThatStartLaterAreNotWaitedFor) {
  small_ = {};
  first_ = small_.alone("first", 10, {});
  const NodeIndex one = small_.alone("one branch", 1, {}), other = small_.alone("the other", 0, {});
  last_ = small_.alone("last", 100, {});
  for (const auto &[from, to] : {std::pair(first_, one), std::pair(first_, other), std::pair(other, last_)})
    small_.edge(from, to);
  const DraftNode urgent = fetch(10, first_, other), patient = evict(5, first_, one);
  fetch(10, other, last_);
  defer();
  for (const auto &[before, after] : deferrals_)
    EXPECT_TRUE(after != patient || before == urgent);
  EXPECT_NEAR(plannedUs_, afterUs_, 1e-9);
}

TEST_F(DeferralTest, NobodyWaitsWhereNothingIsLost) {
  fetch(10, first_, works_);
  evict(10, first_, last_);
  Machine machine = test::smallMachine();
  machine.bothBytesPerSecond = 2e9;
  defer(machine);
  EXPECT_EQ(deferrals_, Edges());
}

} // namespace
} // namespace pumpgraph
