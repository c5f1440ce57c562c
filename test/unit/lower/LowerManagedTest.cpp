// SPDX-License-Identifier: Apache-2.0
// In which order pages leave managed memory, and what a replay is predicted to take.
#include "passes/lower/LowerManaged.h"

#include "passes/lower/PredictManaged.h"
#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

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

  /// `b` gets memory without a value, is written by a node of 10 us, and discarded. Returns the discard.
  NodeIndex useAsTemporary() {
    small_.step.buffers[b_].liveIn = small_.step.buffers[b_].liveOut = false;
    const NodeIndex prefetch = small_.residency(NodeKind::Prefetch, b_, 0, 2);
    const NodeIndex first = small_.alone("first", 10, {small_.write(b_)});
    small_.edge(prefetch, first);
    const NodeIndex discard = small_.residency(NodeKind::Discard, b_, 0, 2);
    small_.edge(first, discard);
    return discard;
  }

  Prediction predicted() const {
    Description lowered = small_.step;
    lowered.stage = Stage::LoweredManaged;
    return predictManaged(lowered, machine_);
  }

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
  const NodeIndex discard = useAsTemporary();
  const NodeIndex last = small_.alone("last", 10, {small_.update(a_)});
  small_.edge(discard, last);
  const NodeIndex evict = small_.residency(NodeKind::Evict, a_, 0, 2);
  small_.edge(last, evict);
  EXPECT_DOUBLE_EQ(predicted().totalUs, 2 + 10 + 10);
}

// A discard is asked for after its node, and takes the thread up; so does bringing memory without a value.
TEST_F(PredictManagedTest, whatMovesNoValueTakesItsTimeAllTheSame) {
  const NodeIndex discard = useAsTemporary();
  const NodeIndex second = small_.alone("second", 10, {});
  small_.edge(discard, second);
  EXPECT_DOUBLE_EQ(predicted().totalUs, 20);
  machine_.emptyBytesPerSecond = 4e9; // half a microsecond for both pages
  EXPECT_DOUBLE_EQ(predicted().totalUs, 0.5 + 10 + 0.5 + 10);
  machine_.requestUs = 3; // after the launch, and after the first node
  EXPECT_DOUBLE_EQ(predicted().totalUs, 3 + 0.5 + 10 + 3 + 0.5 + 10);
}

TEST_F(PredictManagedTest, aLinkDoesNotCatchUp) {
  const NodeIndex last = small_.kernel("last", 1, {small_.update(a_)});
  const NodeIndex evict = small_.residency(NodeKind::Evict, a_, 0, 2);
  small_.edge(last, evict);
  EXPECT_DOUBLE_EQ(predicted().totalUs, 2);
}

// 45 us of evictions from the start on, and 50 us that begin 10 us before the end: what goes on beside the next replay
// has half the link there, but there is time for all.
TEST_F(PredictManagedTest, whatSharesALinkIsNotCountedTwice) {
  const BufferIndex early = small_.live("early", 45), late = small_.live("late", 50);
  for (const BufferIndex buffer : {early, late}) {
    std::vector<std::int32_t> &frames = small_.step.buffers[buffer].frames;
    frames.resize(small_.step.pageCount(buffer));
    std::iota(frames.begin(), frames.end(), buffer == early ? 10 : 100);
  }
  const NodeIndex first = small_.kernel("first", 0, {small_.update(early)});
  const NodeIndex evictEarly = small_.residency(NodeKind::Evict, early, 0, 45);
  small_.edge(first, evictEarly);
  const NodeIndex middle = small_.alone("middle", 90, {small_.update(late)});
  small_.edge(first, middle);
  const NodeIndex evictLate = small_.residency(NodeKind::Evict, late, 0, 50);
  small_.edge(middle, evictLate);
  small_.edge(middle, small_.alone("last", 10, {}));
  for (const std::uint32_t atOnce : {1U, 2U, 4U}) {
    machine_.downAtOnce = atOnce;
    EXPECT_DOUBLE_EQ(predicted().totalUs, 100) << atOnce;
    EXPECT_NEAR(predicted().downBusyUs, 95, 1e-9) << atOnce;
  }
}

// Both halves of the state leave after the last node. What the next replay computes first needs the room of the second.
TEST(LowerManaged, roomThatIsNeededFirstIsMadeFirst) {
  SmallStep small;
  const BufferIndex state = small.live("state", 2), others = small.live("others", 2);
  const BufferIndex first = small.local("first", 2), second = small.local("second", 2);
  small.kernel("writes first", 1, {small.write(first)});
  small.kernel("writes second", 1, {small.read(first), small.write(second)});
  small.kernel("reads second", 1, {small.read(second)});
  small.kernel("optimizer", 1, {small.update(state), small.update(others)});
  const Description captured = small.step;
  small.step.buffers[others].frames = small.step.buffers[first].frames = {0, 1};
  small.step.buffers[state].frames = small.step.buffers[second].frames = {2, 3};
  small.residency(NodeKind::Evict, state, 0, 2);
  const Description lowered = lowerManaged(captured, small.step, {.machine = test::smallMachine()});
  std::vector<std::string> leaving;
  for (const Node &node : lowered.nodes)
    if (node.kind == NodeKind::Evict)
      leaving.push_back(lowered.buffers[node.buffer].name);
  EXPECT_EQ(leaving, (std::vector<std::string>{"others", "state"}));
}

} // namespace
} // namespace pumpgraph
