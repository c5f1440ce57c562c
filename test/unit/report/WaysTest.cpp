// SPDX-License-Identifier: Apache-2.0
#include "passes/report/Ways.h"

#include "test/unit/check/StepBuilder.h"

#include <gtest/gtest.h>

namespace pumpgraph::test {
namespace {

class WaysTest : public testing::Test {
protected:
  /// The peak is node 2, at which all of `buffers` are alive.
  Ways find(const std::vector<BufferIndex> &buffers) {
    Remakeable found;
    found.peak = 2;
    for (const BufferIndex buffer : buffers)
      found.alive.emplace_back(buffer, Range{0, plan_.step().buffers[buffer].size});
    return findWays(found, plan_.step());
  }
  std::uint64_t bytes(BufferIndex buffer) { return plan_.step().buffers[buffer].size; }

  StepBuilder plan_{16};
};

TEST_F(WaysTest, areSaidByTheNextThatTouches) {
  const BufferIndex kept = plan_.buffer("kept", {0}), moved = plan_.buffer("moved", {1, 2}),
                    again = plan_.buffer("again", {3, 4, 5}), over = plan_.buffer("over", {6});
  const NodeIndex make = plan_.kernel("make", {plan_.write(again)});
  plan_.kernel("make others", {plan_.write(kept), plan_.write(moved), plan_.write(over)});
  plan_.evict(moved);
  plan_.kernel("peak", {plan_.read(over)});
  plan_.prefetch(moved);
  plan_.repeat(make);
  plan_.kernel("read", {plan_.read(kept), plan_.read(moved), plan_.read(again)});
  const Ways ways = find({kept, moved, again, over});
  EXPECT_EQ(ways.kept, bytes(kept) + bytes(over)); // of `over` nobody wants anything any more
  EXPECT_EQ(ways.moved, bytes(moved));
  EXPECT_EQ(ways.again, bytes(again));
  EXPECT_EQ(ways.hosted, 0U);
}

TEST_F(WaysTest, beforeThePeakCountForNothing) {
  const BufferIndex a = plan_.buffer("a", {0});
  plan_.kernel("make", {plan_.write(a)});
  plan_.evict(a);
  plan_.prefetch(a);
  plan_.kernel("use", {plan_.read(a)});
  plan_.kernel("peak", {plan_.read(a)});
  plan_.kernel("read", {plan_.read(a)});
  plan_.prefetch(a); // for somebody else
  EXPECT_EQ(find({a}).kept, bytes(a));
}

TEST_F(WaysTest, areOfPagesAndOfTheBufferThatGoesOn) {
  const BufferIndex a = plan_.buffer("a", {0, 1});
  plan_.kernel("make", {plan_.write(a)});
  plan_.kernel("use", {plan_.read(a)});
  plan_.kernel("peak", {plan_.read(a)});
  const BufferIndex after = plan_.continuation(a, {2, 3});
  plan_.move(NodeKind::Prefetch, after, {0, plan_.step().pageBytes});
  plan_.kernel("read", {plan_.read(after)});
  const Ways ways = find({a});
  EXPECT_EQ(ways.moved, plan_.step().pageBytes);
  EXPECT_EQ(ways.kept, bytes(a) - plan_.step().pageBytes);
}

TEST_F(WaysTest, areHostedWhereNobodyTouchesAfterIt) {
  const BufferIndex a = plan_.buffer("a", {noFrame});
  plan_.hosted(a);
  for (const char *name : {"make", "use", "peak"})
    plan_.kernel(name, {plan_.update(a)});
  EXPECT_EQ(find({a}).hosted, bytes(a));
}

} // namespace
} // namespace pumpgraph::test
