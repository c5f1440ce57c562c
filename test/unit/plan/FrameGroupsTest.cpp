// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/FrameGroups.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

constexpr PieceIndex x{0}, y{1};

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
  const FrameGroups::Ranking &dirty = groups.ranking(Group::Standing::Dirty);
  ASSERT_EQ(dirty.size(), 2u);
  EXPECT_EQ(dirty.begin()->second, b);
  EXPECT_EQ(groups.ranking(Group::Standing::Clean).size(), 1u);
  EXPECT_TRUE(groups.ranking(Group::Standing::Vacant).empty());
  EXPECT_FALSE(groups.anyUnused());
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
