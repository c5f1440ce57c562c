// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/schedule/JoinTransfers.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

constexpr std::uint32_t mostPages = 17;

/// One captured node, then transfers that all follow it, run one after the other and are ready when it ends.
class JoinTransfersTest : public testing::Test {
protected:
  JoinTransfersTest() {
    draft_.capturedCount = 1;
    schedule_.order = {0};
    schedule_.startUs = {0};
    schedule_.readyUs = {0};
  }

  DraftNode evict(const PageRun &pages) {
    const auto node = static_cast<DraftNode>(1 + draft_.transfers.size());
    draft_.transfers.push_back({NodeKind::Evict, pages});
    draft_.edges.push_back({0, node});
    schedule_.order.push_back(node);
    schedule_.startUs.push_back(node * 10.0);
    schedule_.readyUs.push_back(10);
    return node;
  }

  std::vector<std::uint32_t> pagesOfEach(std::uint32_t reach) const {
    std::vector<std::uint32_t> pages;
    for (const DraftTransfer &transfer : joinTransfers(draft_, schedule_, {reach, mostPages}).transfers)
      pages.push_back(transfer.pages.pageCount);
    return pages;
  }

  using Pages = std::vector<std::uint32_t>;
  Draft draft_;
  Schedule schedule_;
};

TEST_F(JoinTransfersTest, NeighboursBecomeOne) {
  evict({0, 0, 2});
  evict({0, 2, 3});
  evict({0, 5, 1});
  EXPECT_EQ(pagesOfEach(0), Pages{6});
}

TEST_F(JoinTransfersTest, TheOrderInTheBufferDoesNotMatter) {
  evict({0, 2, 3});
  evict({0, 0, 2});
  const Draft joined = joinTransfers(draft_, schedule_, {0, mostPages});
  ASSERT_EQ(joined.transfers.size(), 1u);
  EXPECT_EQ(joined.transfers[0].pages.firstPage, 0u);
  EXPECT_EQ(joined.transfers[0].pages.pageCount, 5u);
}

TEST_F(JoinTransfersTest, WhatIsNotReadyWithTheFirstStaysApart) {
  evict({0, 0, 2});
  schedule_.readyUs[evict({0, 2, 3})] = 10.5;
  EXPECT_EQ(pagesOfEach(0), (Pages{2, 3}));
}

TEST_F(JoinTransfersTest, OtherBuffersAndGapsStayApart) {
  evict({0, 0, 2});
  evict({1, 2, 3});
  evict({0, 3, 1});
  EXPECT_EQ(pagesOfEach(9), (Pages{2, 3, 1}));
}

TEST_F(JoinTransfersTest, ReachSaysHowManyMayLieBetween) {
  evict({0, 0, 2});
  evict({1, 0, 4});
  evict({0, 2, 3});
  EXPECT_EQ(pagesOfEach(0), (Pages{2, 4, 3}));
  EXPECT_EQ(pagesOfEach(1), (Pages{5, 4}));
}

TEST_F(JoinTransfersTest, NoneGrowsBeyondTheLargestTransfer) {
  evict({0, 0, mostPages});
  evict({0, mostPages, 1});
  EXPECT_EQ(pagesOfEach(0), (Pages{mostPages, 1}));
}

TEST_F(JoinTransfersTest, EdgesAndDiscardsFollow) {
  evict({0, 0, 2});
  const DraftNode second = evict({0, 2, 3}), other = evict({1, 0, 1});
  draft_.edges.push_back({second, other});
  draft_.discards.push_back({{2, 0, 1}, {second}, {other}});
  const Draft joined = joinTransfers(draft_, schedule_, {0, mostPages});
  ASSERT_EQ(joined.transfers.size(), 2u);
  EXPECT_EQ(joined.edges.back().before, 1u);
  EXPECT_EQ(joined.edges.back().after, 2u);
  EXPECT_EQ(joined.discards[0].after, std::vector<DraftNode>{1});
  EXPECT_EQ(joined.discards[0].before, std::vector<DraftNode>{2});
}

} // namespace
} // namespace pumpgraph
