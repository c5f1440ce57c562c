// SPDX-License-Identifier: Apache-2.0
// What a replay on managed memory is predicted to take.
#include "passes/lower/LowerManaged.h"

#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

using test::SmallStep;

/// Two buffers in turns in the same two frames, and nodes of 10 us. `a` leaves after the last node.
class PredictManagedTest : public testing::Test {
protected:
  PredictManagedTest() {
    a_ = small_.live("a", 2);
    b_ = small_.live("b", 2);
    small_.step.buffers[a_].frames = small_.step.buffers[b_].frames = {0, 1};
    small_.step.budgetBytes = 2 * test::smallPage;
  }

  Prediction predicted() const { return predictManaged(small_.step, machine_); }

  SmallStep small_;
  BufferIndex a_ = 0, b_ = 0;
  Machine machine_ = test::smallMachine();
};

TEST_F(PredictManagedTest, theLastEvictionGoesOnBesideTheNextReplay) {
  const NodeIndex last = small_.kernel("last", 10, {small_.update(a_)});
  const NodeIndex evict = small_.residency(NodeKind::Evict, a_, 0, 2);
  small_.edge(last, evict);
  EXPECT_DOUBLE_EQ(predicted().totalUs, 10);
  EXPECT_DOUBLE_EQ(predicted().nodes[evict].endUs, 12);
}

// 2 us each way: the prefetch of the next replay waits for the room, and its node for it.
TEST_F(PredictManagedTest, butItsRoomIsWaitedFor) {
  const NodeIndex prefetch = small_.residency(NodeKind::Prefetch, b_, 0, 2);
  const NodeIndex first = small_.alone("first", 10, {small_.read(b_)});
  small_.edge(prefetch, first);
  const NodeIndex last = small_.alone("last", 10, {small_.update(a_)});
  small_.edge(first, last);
  const NodeIndex evict = small_.residency(NodeKind::Evict, a_, 0, 2);
  small_.edge(last, evict);
  EXPECT_DOUBLE_EQ(predicted().totalUs, 2 + 2 + 10 + 10);
  small_.step.buffers[b_].frames = {2, 3};
  EXPECT_DOUBLE_EQ(predicted().totalUs, 2 + 10 + 10 + 2.0 / 3) << "both directions share the link meanwhile";
}

// So is it by a prefetch that brings no value.
TEST_F(PredictManagedTest, evenWhereNothingIsBrought) {
  small_.step.buffers[b_].liveIn = small_.step.buffers[b_].liveOut = false;
  const NodeIndex prefetch = small_.residency(NodeKind::Prefetch, b_, 0, 2);
  const NodeIndex first = small_.alone("first", 10, {small_.write(b_)});
  small_.edge(prefetch, first);
  const NodeIndex discard = small_.residency(NodeKind::Discard, b_, 0, 2);
  small_.edge(first, discard);
  const NodeIndex last = small_.alone("last", 10, {small_.update(a_)});
  small_.edge(discard, last);
  const NodeIndex evict = small_.residency(NodeKind::Evict, a_, 0, 2);
  small_.edge(last, evict);
  EXPECT_DOUBLE_EQ(predicted().totalUs, 2 + 10 + 10);
}

TEST_F(PredictManagedTest, aLinkDoesNotCatchUp) {
  const NodeIndex last = small_.kernel("last", 1, {small_.update(a_)});
  const NodeIndex evict = small_.residency(NodeKind::Evict, a_, 0, 2);
  small_.edge(last, evict);
  EXPECT_DOUBLE_EQ(predicted().totalUs, 2);
}

} // namespace
} // namespace pumpgraph
