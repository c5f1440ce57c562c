// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/allocate/FrameGroups.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

constexpr PieceIndex x{0}, y{1};

std::vector<GroupIndex> inOrder(const Ranking &ranking) {
  std::vector<GroupIndex> groups;
  ranking.visit([&](GroupIndex group) {
    groups.push_back(group);
    return true;
  });
  return groups;
}

TEST(Ranking, NeverUsedAgainComesFirstThenTheFarthestThenTheSmallestIndex) {
  constexpr GroupIndex a{0}, b{1}, c{2}, d{3}, e{4};
  Ranking ranking;
  ranking.insert(700, d);
  ranking.insert(63, a);
  ranking.insert(64, e);
  ranking.insert(700, b);
  ranking.insert(neverUsed, c);
  EXPECT_EQ(inOrder(ranking), (std::vector<GroupIndex>{c, b, d, e, a}));
  ranking.erase(700, b);
  ranking.erase(700, d);
  EXPECT_EQ(inOrder(ranking), (std::vector<GroupIndex>{c, e, a}));
}

TEST(Ranking, AVisitEndsWhereItIsTold) {
  Ranking ranking;
  ranking.insert(7, GroupIndex{1});
  ranking.insert(5, GroupIndex{0});
  int visits = 0;
  ranking.visit([&](GroupIndex) { return ++visits < 1; });
  EXPECT_EQ(visits, 1);
}

TEST(FrameGroups, ASplitKeepsTheHistoryOnBothSides) {
  FrameGroups groups(5, 8);
  const GroupIndex first = *groups.anyUnused();
  groups[first].parts.push_back({x, 2, true});
  groups[first].barrier = {7};
  const GroupIndex rest = groups.split(first, 3);
  EXPECT_EQ(groups[first].frameCount, 3u);
  EXPECT_EQ(groups[rest].firstFrame, 8u);
  EXPECT_EQ(groups[rest].frameCount, 5u);
  EXPECT_EQ(groups[rest].parts[0].firstPage, 5u);
  EXPECT_EQ(groups[rest].barrier, (std::vector<std::uint32_t>{7}));
}

TEST(FrameGroups, WhatWasSplitMergesAgain) {
  FrameGroups groups(0, 8);
  const GroupIndex first = *groups.anyUnused();
  groups[first].parts.push_back({x, 0, true});
  const GroupIndex rest = groups.split(first, 3);
  ASSERT_TRUE(groups.canMerge(first, rest));
  groups.merge(first, rest);
  EXPECT_EQ(groups[first].frameCount, 8u);
  EXPECT_EQ(groups[rest].frameCount, 0u);
}

TEST(FrameGroups, GroupsWithDifferentTenantsDoNotMerge) {
  FrameGroups groups(0, 8);
  const GroupIndex first = *groups.anyUnused();
  groups[first].parts.push_back({x, 0, true});
  const GroupIndex rest = groups.split(first, 3);
  groups[rest].parts.push_back({y, 0, true});
  EXPECT_FALSE(groups.canMerge(first, rest));
}

TEST(FrameGroups, GroupsThatWaitForDifferentNodesDoNotMerge) {
  FrameGroups groups(0, 8);
  const GroupIndex first = *groups.anyUnused();
  const GroupIndex rest = groups.split(first, 3);
  groups[rest].barrier = {4};
  EXPECT_FALSE(groups.canMerge(first, rest));
}

// What a copy to the host waits for is what either would have waited for.
TEST(FrameGroups, MergedGroupsWaitForTheWritesOfBoth) {
  FrameGroups groups(0, 8);
  const GroupIndex first = *groups.anyUnused();
  groups[first].accesses = {9};
  groups[first].barrier = {2};
  const GroupIndex rest = groups.split(first, 3), last = groups.split(rest, 3);
  groups[rest].writes = {5};
  groups[last].writes = {5};
  ASSERT_TRUE(groups.canMerge(rest, last));
  groups.merge(rest, last);
  EXPECT_EQ(groups[rest].writes, (std::vector<std::uint32_t>{5}));
  ASSERT_TRUE(groups.canMerge(first, rest));
  groups.merge(first, rest);
  EXPECT_EQ(groups[first].writes, (std::vector<std::uint32_t>{2, 5}));
}

TEST(FrameGroups, GroupsWhosePagesAreNotNeighboursDoNotMerge) {
  FrameGroups groups(0, 8);
  const GroupIndex first = *groups.anyUnused();
  const GroupIndex rest = groups.split(first, 3);
  groups[first].parts.push_back({x, 0, true});
  groups[rest].parts.push_back({x, 4, true});
  EXPECT_FALSE(groups.canMerge(first, rest));
}

TEST(FrameGroups, TheFarthestNextUseRanksFirst) {
  FrameGroups groups(0, 3);
  const GroupIndex a = *groups.anyUnused(), b = groups.split(a, 1), c = groups.split(b, 1);
  groups.rank(a, 5, Group::Standing::Dirty);
  groups.rank(b, 9, Group::Standing::Dirty);
  groups.rank(c, 7, Group::Standing::Clean);
  EXPECT_EQ(inOrder(groups.ranking(Group::Standing::Dirty)), (std::vector<GroupIndex>{b, a}));
  EXPECT_EQ(inOrder(groups.ranking(Group::Standing::Clean)).size(), 1u);
  EXPECT_TRUE(inOrder(groups.ranking(Group::Standing::Vacant)).empty());
}

TEST(FrameGroups, EveryFrameBelongsToAGroup) {
  FrameGroups groups(10, 8);
  const GroupIndex first = *groups.anyUnused(), rest = groups.split(first, 3);
  for (std::uint32_t frame = 10; frame < 18; ++frame)
    EXPECT_EQ(groups.holding(frame), frame < 13 ? first : rest);
}

TEST(FrameGroups, UnusedGroupsCanBeSoughtFromAFrameOn) {
  FrameGroups groups(10, 8);
  const GroupIndex rest = groups.split(*groups.anyUnused(), 3);
  EXPECT_EQ(groups.anyUnused(13), rest);
  EXPECT_FALSE(groups.anyUnused(14));
}

} // namespace
} // namespace pumpgraph
