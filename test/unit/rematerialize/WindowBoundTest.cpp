// SPDX-License-Identifier: Apache-2.0
#include "passes/rematerialize/WindowBound.h"

#include "test/unit/rematerialize/PureStep.h"

#include <gtest/gtest.h>

namespace pumpgraph::test {
namespace {

// A page of four bytes takes 4 us in each direction.
class WindowBoundOf : public testing::Test {
protected:
  WindowBoundOf() {
    machine_.upBytesPerSecond = machine_.downBytesPerSecond = 1e6;
    machine_.bothBytesPerSecond = 2e6;
  }
  double totalUs(std::uint64_t pages, const std::vector<Turn> &turns) {
    const StepValues values(step_.step());
    return WindowBound(step_.step(), values, machine_, pages * StepBuilder::pageBytes).totalUs(turns);
  }
  PureStep step_;
  Machine machine_;
};

TEST_F(WindowBoundOf, aStepThatFitsIsItsNodes) {
  const BufferIndex a = step_.buffer("a"), b = step_.buffer("b");
  step_.pure("make", {step_.write(a)}, 1);
  step_.impure("other", {step_.write(b)}, 1);
  step_.impure("read", {step_.read(a)}, 1);
  EXPECT_DOUBLE_EQ(totalUs(2, {{0}, {1}, {2}}), 3);
  EXPECT_DOUBLE_EQ(totalUs(2, {{0}, {1}, {0, true}, {2}}), 4);
}

TEST_F(WindowBoundOf, aStepThatDoesNotFitMovesMore) {
  const BufferIndex x = step_.buffer("x", {0, 0, 0}, StepBuilder::liveInOut),
                    y = step_.buffer("y", {0, 0, 0}, StepBuilder::liveInOut);
  step_.impure("read x", {step_.read(x)}, 1);
  step_.impure("read y", {step_.read(y)}, 1);
  EXPECT_DOUBLE_EQ(totalUs(6, {{0}, {1}}), 2);
  EXPECT_GE(totalUs(3, {{0}, {1}}), 12);
}

TEST_F(WindowBoundOf, aStepThatMakesValuesAgainMovesLess) {
  std::vector<BufferIndex> buffers;
  for (int i = 0; i < 4; ++i)
    buffers.push_back(step_.buffer("value"));
  for (const BufferIndex buffer : buffers)
    step_.pure("make", {step_.write(buffer)}, 1);
  for (const BufferIndex buffer : buffers)
    step_.impure("read", {step_.read(buffer)}, 1);
  const std::vector<Turn> once{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
  const std::vector<Turn> again{{0}, {1}, {2}, {3}, {0, true}, {4}, {1, true}, {5}, {2, true}, {6}, {7}};
  EXPECT_GT(totalUs(1, once), totalUs(1, again));
  EXPECT_DOUBLE_EQ(totalUs(4, once), 8);
}

TEST_F(WindowBoundOf, exclusiveBuffersLeaveLessRoom) {
  const BufferIndex a = step_.buffer("a"), b = step_.buffer("b");
  step_.exclusive("outside", {0});
  step_.impure("write a", {step_.write(a)}, 1);
  step_.impure("write b", {step_.write(b)}, 1);
  step_.impure("read", {step_.read(a), step_.read(b)}, 1);
  EXPECT_LE(totalUs(3, {{0}, {1}, {2}}), totalUs(2, {{0}, {1}, {2}}));
  EXPECT_DOUBLE_EQ(totalUs(3, {{0}, {1}, {2}}), 3);
}

} // namespace
} // namespace pumpgraph::test
