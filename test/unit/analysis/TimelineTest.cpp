// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Timeline.h"

#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

using test::smallPage;
using test::SmallStep;

TEST(Timeline, CutsBuffersWhereAccessesBeginAndEnd) {
  SmallStep small;
  const BufferIndex b = small.local("b", 10);
  Access middle = small.read(b);
  middle.range = {3 * smallPage + 1, 2 * smallPage}; // touches pages 3, 4, 5
  small.kernel("k", 1, {middle});
  const Timeline timeline(small.step);
  ASSERT_EQ(timeline.pieces().size(), 3u);
  EXPECT_EQ(timeline.piece(PieceIndex{1}).firstPage, 3u);
  EXPECT_EQ(timeline.piece(PieceIndex{1}).pageCount, 3u);
  EXPECT_TRUE(timeline.usesOf(PieceIndex{0}).empty());
  EXPECT_EQ(timeline.usesOf(PieceIndex{1}).size(), 1u);
}

TEST(Timeline, PiecesAreNoLargerThanAsked) {
  SmallStep small;
  small.local("b", 10);
  const Timeline timeline(small.step, 4 * smallPage);
  ASSERT_EQ(timeline.pieces().size(), 3u);
  EXPECT_EQ(timeline.piece(PieceIndex{2}).pageCount, 2u);
}

TEST(Timeline, APartialLastPageIsAPieceOfItsOwn) {
  SmallStep small;
  const BufferIndex b = small.local("b", 3);
  small.step.buffers[b].size = 2 * smallPage + 1;
  const Timeline timeline(small.step);
  ASSERT_EQ(timeline.pieces().size(), 2u);
  EXPECT_EQ(timeline.piece(PieceIndex{0}).bytes, 2 * smallPage);
  EXPECT_EQ(timeline.piece(PieceIndex{1}).pageCount, 1u);
  EXPECT_EQ(timeline.piece(PieceIndex{1}).bytes, 1u);
}

TEST(Timeline, OnlyWholePagesAreOverwritten) {
  SmallStep small;
  const BufferIndex b = small.live("b", 3);
  Access access = small.write(b);
  access.range = {0, smallPage + 500}; // page 0 wholly, page 1 in part
  small.kernel("k", 1, {access});
  const Timeline timeline(small.step);
  ASSERT_EQ(timeline.pieces().size(), 3u);
  EXPECT_TRUE(timeline.usesOf(PieceIndex{0}).front().overwrites);
  EXPECT_FALSE(timeline.usesOf(PieceIndex{1}).front().overwrites);
  EXPECT_TRUE(timeline.usesOf(PieceIndex{1}).front().readsOld);
}

TEST(Timeline, WhatHasNoValueIsNotReadByWhatWritesItFirst) {
  SmallStep small;
  const BufferIndex b = small.local("b", 1), updated = small.local("updated", 1);
  small.kernel("first", 1, {small.mayUse(b), small.update(updated)});
  small.kernel("second", 1, {small.mayUse(b)});
  const Timeline timeline(small.step);
  EXPECT_FALSE(timeline.usesOf(PieceIndex{0}).front().readsOld);
  EXPECT_TRUE(timeline.usesOf(PieceIndex{0}).front().needsValue()) << "if there were one";
  EXPECT_TRUE(timeline.usesOf(PieceIndex{0}).back().readsOld);
  EXPECT_TRUE(timeline.usesOf(PieceIndex{1}).front().readsOld) << "it says so";
}

TEST(Timeline, AWriteToTheEndOfThePartialPageOverwritesIt) {
  SmallStep small;
  const BufferIndex b = small.local("b", 2);
  small.step.buffers[b].size = smallPage + 1;
  small.kernel("k", 1, {small.write(b)});
  EXPECT_TRUE(Timeline(small.step).usesOf(PieceIndex{0}).front().overwrites);
}

TEST(Timeline, AnUpdateInPlaceNeedsTheValue) {
  SmallStep small;
  const BufferIndex b = small.live("b", 1);
  small.kernel("k", 1, {small.update(b)});
  EXPECT_TRUE(Timeline(small.step).usesOf(PieceIndex{0}).front().needsValue());
}

TEST(Timeline, SeveralAccessesOfANodeAreOneUse) {
  SmallStep small;
  const BufferIndex b = small.local("b", 1);
  small.kernel("k", 1, {small.write(b), small.read(b)});
  const Timeline timeline(small.step);
  ASSERT_EQ(timeline.usesOf(PieceIndex{0}).size(), 1u);
  EXPECT_TRUE(timeline.usesOf(PieceIndex{0}).front().writes);
  EXPECT_TRUE(timeline.usesOf(PieceIndex{0}).front().needsValue());
}

TEST(Timeline, LocalBuffersCountFromFirstToLastUseAndLiveOnesAlways) {
  SmallStep small;
  const BufferIndex a = small.local("a", 2), b = small.local("b", 3), w = small.live("w", 4);
  small.exclusive("x", 5);
  small.kernel("k0", 1, {small.write(a)});
  small.kernel("k1", 1, {small.read(a), small.read(w)});
  small.kernel("k2", 1, {small.write(b)});
  EXPECT_EQ(Timeline(small.step).peakPages(), 5u + 4u + 3u);
}

TEST(Timeline, ALiveValueThatIsOverwrittenFirstDoesNotCountBefore) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), gradient = small.live("gradient", 4);
  small.kernel("k0", 1, {small.write(a)});
  small.kernel("k1", 1, {small.write(gradient)});
  EXPECT_EQ(Timeline(small.step).peakPages(), 4u);
}

TEST(Timeline, WorkingSetsCountEachPageOnce) {
  SmallStep small;
  const BufferIndex a = small.local("a", 2), b = small.local("b", 3);
  const NodeIndex k = small.kernel("k", 1, {small.read(a), small.write(a), small.read(b)});
  EXPECT_EQ(Timeline(small.step).workingSetPages(k), 5u);
}

TEST(Timeline, ParallelBranchesRunSideBySideInMemory) {
  SmallStep small;
  const NodeIndex a = small.alone("a", 10, {}), b = small.alone("b", 4, {});
  const NodeIndex join = small.alone("join", 1, {});
  small.edge(a, join);
  small.edge(b, join);
  EXPECT_DOUBLE_EQ(inMemoryTimes(small.step).totalUs, 11);
}

} // namespace
} // namespace pumpgraph
