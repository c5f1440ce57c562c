// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/RequiredTraffic.h"

#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

using test::smallPage;
using test::SmallStep;

class RequiredTrafficTest : public ::testing::Test {
protected:
  void inFrame(BufferIndex buffer, std::int32_t frame) { small_.step.buffers[buffer].frames = {frame}; }
  /// The promise of the reports: not more than a tenth in vain.
  bool movesInVain() const {
    return static_cast<double>(movedTraffic(small_.step).total()) >
           1.1 * static_cast<double>(requiredTraffic(small_.step).total());
  }

  SmallStep small_;
};

TEST_F(RequiredTrafficTest, AStepWithoutAPlanMovesNothing) {
  small_.kernel("use", 1, {small_.update(small_.live("w", 3))});
  EXPECT_EQ(requiredTraffic(small_.step), Traffic{});
  EXPECT_EQ(movedTraffic(small_.step), Traffic{});
}

TEST_F(RequiredTrafficTest, AGapWithAnotherPageInItCostsOneCopyEachWay) {
  const BufferIndex a = small_.local("a", 1), b = small_.local("b", 1);
  inFrame(a, 0);
  inFrame(b, 0);
  small_.kernel("make a", 1, {small_.write(a)});
  small_.residency(NodeKind::Evict, a, 0, 1);
  small_.kernel("make b", 1, {small_.write(b)});
  small_.residency(NodeKind::Prefetch, a, 0, 1);
  small_.kernel("read a", 1, {small_.read(a)});
  EXPECT_EQ(requiredTraffic(small_.step), (Traffic{smallPage, smallPage}));
  EXPECT_FALSE(movesInVain());
}

TEST_F(RequiredTrafficTest, AGapThatNobodyUsesIsInVain) {
  const BufferIndex a = small_.local("a", 1), b = small_.local("b", 1);
  inFrame(a, 0);
  inFrame(b, 1);
  small_.kernel("make a", 1, {small_.write(a)});
  small_.residency(NodeKind::Evict, a, 0, 1);
  small_.kernel("make b", 1, {small_.write(b)});
  small_.residency(NodeKind::Prefetch, a, 0, 1);
  small_.kernel("read a", 1, {small_.read(a)});
  EXPECT_EQ(requiredTraffic(small_.step), Traffic{});
  EXPECT_TRUE(movesInVain());
}

TEST_F(RequiredTrafficTest, ACopyUpThatIsOverwrittenIsInVain) {
  const BufferIndex a = small_.local("a", 1), b = small_.local("b", 1);
  inFrame(a, 0);
  inFrame(b, 0);
  small_.kernel("make a", 1, {small_.write(a)});
  small_.residency(NodeKind::Evict, a, 0, 1);
  small_.kernel("make b", 1, {small_.write(b)});
  small_.residency(NodeKind::Prefetch, a, 0, 1);
  small_.kernel("make a again", 1, {small_.write(a)});
  EXPECT_EQ(requiredTraffic(small_.step), Traffic{});
  EXPECT_TRUE(movesInVain());
}

TEST_F(RequiredTrafficTest, ACopyUpBeforeThePageLeavesAgainIsInVain) {
  const BufferIndex w = small_.live("w", 1), b = small_.local("b", 1);
  inFrame(w, 0);
  inFrame(b, 0);
  small_.residency(NodeKind::Prefetch, w, 0, 1);
  small_.kernel("make b", 1, {small_.write(b)});
  small_.residency(NodeKind::Prefetch, w, 0, 1);
  small_.kernel("read w", 1, {small_.read(w)});
  EXPECT_EQ(requiredTraffic(small_.step), (Traffic{smallPage, 0}));
  EXPECT_TRUE(movesInVain());
}

TEST_F(RequiredTrafficTest, ACleanPageNeedsNoCopyDown) {
  const BufferIndex w = small_.live("w", 1), b = small_.local("b", 1);
  inFrame(w, 0);
  inFrame(b, 0);
  small_.residency(NodeKind::Prefetch, w, 0, 1);
  small_.kernel("read w", 1, {small_.read(w)});
  small_.residency(NodeKind::Evict, w, 0, 1);
  small_.kernel("make b", 1, {small_.write(b)});
  small_.residency(NodeKind::Prefetch, w, 0, 1);
  small_.kernel("read w again", 1, {small_.read(w)});
  EXPECT_EQ(requiredTraffic(small_.step), (Traffic{2 * smallPage, 0}));
  EXPECT_TRUE(movesInVain());
}

TEST_F(RequiredTrafficTest, ADeadPageNeedsNoCopyDown) {
  const BufferIndex a = small_.local("a", 1), b = small_.local("b", 1);
  inFrame(a, 0);
  inFrame(b, 0);
  small_.kernel("make a", 1, {small_.write(a)});
  small_.residency(NodeKind::Evict, a, 0, 1);
  small_.kernel("make b", 1, {small_.write(b)});
  EXPECT_EQ(requiredTraffic(small_.step), Traffic{});
  EXPECT_TRUE(movesInVain());
}

// At the boundary the plan says where a live value is: a resident page that lent its frame comes back, a changed one
// that is not resident goes down.
TEST_F(RequiredTrafficTest, TheBoundaryIsAUse) {
  const BufferIndex resident = small_.live("resident", 1), away = small_.live("away", 1);
  inFrame(resident, 0);
  inFrame(away, 0);
  small_.step.buffers[resident].resident = {{0, smallPage}};
  small_.kernel("update", 1, {small_.update(away)});
  EXPECT_EQ(requiredTraffic(small_.step), (Traffic{2 * smallPage, 2 * smallPage}));
}

// One that is mirrored may leave without a copy, and has one again at the end.
TEST_F(RequiredTrafficTest, AMirroredPageGoesDownOnceItHasChanged) {
  const BufferIndex mirrored = small_.live("mirrored", 1), other = small_.local("other", 1);
  inFrame(mirrored, 0);
  inFrame(other, 0);
  small_.step.buffers[mirrored].resident = small_.step.buffers[mirrored].mirrored = {{0, smallPage}};
  small_.kernel("make other", 1, {small_.write(other)});
  EXPECT_EQ(requiredTraffic(small_.step), (Traffic{smallPage, 0}));
  small_.kernel("update", 1, {small_.update(mirrored)});
  EXPECT_EQ(requiredTraffic(small_.step), (Traffic{smallPage, smallPage}));
}

TEST_F(RequiredTrafficTest, ALiveOutPageThatLeftChangedGoesDownOnce) {
  const BufferIndex w = small_.live("w", 1), b = small_.local("b", 1);
  inFrame(w, 0);
  inFrame(b, 0);
  small_.kernel("update w", 1, {small_.update(w)});
  small_.kernel("make b", 1, {small_.write(b)});
  EXPECT_EQ(requiredTraffic(small_.step), (Traffic{smallPage, smallPage}));
}

// A write that may leave bytes alone needs the old value; so does one that covers part of the page.
TEST_F(RequiredTrafficTest, OnlyACertainOverwriteSavesTheCopyUp) {
  const BufferIndex w = small_.live("w", 1);
  inFrame(w, 0);
  small_.kernel("may write", 1, {{w, {0, smallPage}, modeWrite, modeNone}});
  EXPECT_EQ(requiredTraffic(small_.step).upBytes, smallPage);
  small_.step.nodes[0].accesses = {{w, {0, smallPage / 2}, modeWrite, modeWrite}};
  EXPECT_EQ(requiredTraffic(small_.step).upBytes, smallPage);
  small_.step.nodes[0].accesses = {small_.write(w)};
  EXPECT_EQ(requiredTraffic(small_.step).upBytes, 0u);
}

TEST_F(RequiredTrafficTest, WhatGoesOnInAnotherFrameMoves) {
  const BufferIndex a = small_.local("a", 1), next = small_.continuation(a);
  inFrame(a, 0);
  inFrame(next, 1);
  small_.kernel("make a", 1, {small_.write(a)});
  small_.kernel("read a", 1, {small_.read(next)});
  EXPECT_EQ(requiredTraffic(small_.step), (Traffic{smallPage, smallPage}));
}

TEST_F(RequiredTrafficTest, WhatGoesOnInItsFrameStaysThere) {
  const BufferIndex a = small_.local("a", 1), next = small_.continuation(a), b = small_.local("b", 1);
  for (const BufferIndex buffer : {a, next, b})
    inFrame(buffer, 0);
  small_.kernel("make a", 1, {small_.write(a)});
  const NodeIndex between = small_.kernel("between", 1, {});
  small_.kernel("read a", 1, {small_.read(next)});
  EXPECT_EQ(requiredTraffic(small_.step), Traffic{});
  small_.step.nodes[between].accesses = {small_.write(b)}; // it leaves and comes back, as any page does
  EXPECT_EQ(requiredTraffic(small_.step), (Traffic{smallPage, smallPage}));
}

TEST_F(RequiredTrafficTest, WhatHasStayedGoesOnElsewhereOnce) {
  const BufferIndex a = small_.local("a", 1), next = small_.continuation(a), last = small_.continuation(next);
  inFrame(a, 0);
  inFrame(next, 0);
  inFrame(last, 1);
  small_.kernel("make a", 1, {small_.write(a)});
  small_.kernel("update a", 1, {small_.update(next)});
  small_.kernel("read a", 1, {small_.read(last)});
  EXPECT_EQ(requiredTraffic(small_.step), (Traffic{smallPage, smallPage}));
  // Back in the first frame it is another page.
  inFrame(next, 1);
  inFrame(last, 0);
  EXPECT_EQ(requiredTraffic(small_.step), (Traffic{2 * smallPage, 2 * smallPage}));
}

TEST_F(RequiredTrafficTest, HostedPagesDoNotMove) {
  const BufferIndex w = small_.live("w", 2), b = small_.local("b", 2);
  for (const BufferIndex buffer : {w, b}) {
    small_.step.buffers[buffer].frames = {noFrame, noFrame};
    small_.step.buffers[buffer].hosted = {{0, 2 * smallPage}};
  }
  small_.kernel("write", 1, {small_.update(w), small_.write(b)});
  small_.kernel("read", 1, {small_.read(w), small_.read(b)});
  EXPECT_EQ(requiredTraffic(small_.step), Traffic());
}

TEST_F(RequiredTrafficTest, APartialLastPageCountsItsBytes) {
  const BufferIndex w = small_.live("w", 2);
  small_.step.buffers[w].size = smallPage + 300;
  small_.step.buffers[w].frames = {0, 1};
  small_.kernel("update", 1, {small_.update(w)});
  EXPECT_EQ(requiredTraffic(small_.step), (Traffic{smallPage + 300, smallPage + 300}));
}

} // namespace
} // namespace pumpgraph
