// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/schedule/JoinTransfers.h"
#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

using test::smallPage;
using test::SmallStep;

/// One captured node, then transfers that all follow it, run one after the other and are ready when it ends. Buffers of
/// two pages, of which the last is half full, and of four.
class JoinRowsTest : public testing::Test {
protected:
  JoinRowsTest() {
    for (int i = 0; i < 20; ++i) {
      small_.local("half full", 2);
      small_.step.buffers.back().size -= smallPage / 2;
    }
    large_ = small_.local("large", 4);
    draft_.capturedCount = 1;
    schedule_.order = {0};
    schedule_.startUs = {0};
    schedule_.readyUs = {0};
  }

  DraftNode move(NodeKind kind, const PageRun &pages) {
    const auto node = static_cast<DraftNode>(1 + draft_.transfers.size());
    draft_.transfers.push_back({kind, pages});
    draft_.edges.push_back({0, node});
    schedule_.order.push_back(node);
    schedule_.startUs.push_back(node * 10.0);
    schedule_.readyUs.push_back(10);
    return node;
  }
  DraftNode evict(const PageRun &pages) { return move(NodeKind::Evict, pages); }

  Draft joined(const RowLimits &limits = {.reach = 16, .mostBytes = 1 << 20}) const {
    return joinRows(small_.step, draft_, schedule_, limits);
  }
  std::vector<std::size_t> rowsOfEach(const RowLimits &limits = {.reach = 16, .mostBytes = 1 << 20}) const {
    std::vector<std::size_t> rows;
    for (const DraftTransfer &transfer : joined(limits).transfers)
      rows.push_back(1 + transfer.rows.size());
    return rows;
  }

  using Rows = std::vector<std::size_t>;
  SmallStep small_;
  BufferIndex large_ = 0;
  Draft draft_;
  Schedule schedule_;
};

TEST_F(JoinRowsTest, TransfersOfOneSizeBecomeOneCopy) {
  evict({0, 1, 1});
  evict({large_, 0, 1});
  evict({1, 1, 1});
  evict({large_, 2, 1});
  EXPECT_EQ(rowsOfEach(), (Rows{2, 2}));
  const Draft draft = joined();
  EXPECT_EQ(draft.transfers[0].rows[0].buffer, 1u);
  EXPECT_EQ(draft.transfers[1].rows[0].firstPage, 2u);
  ASSERT_EQ(draft.edges.size(), 4u); // to what they have become
  EXPECT_EQ(draft.edges[2].after, draft.edges[0].after);
  EXPECT_EQ(draft.edges[3].after, draft.edges[1].after);
}

TEST_F(JoinRowsTest, EachDirectionHasItsOwn) {
  evict({0, 1, 1});
  move(NodeKind::Prefetch, {1, 1, 1});
  EXPECT_EQ(rowsOfEach(), (Rows{1, 1}));
}

TEST_F(JoinRowsTest, WhatIsNotReadyWithTheFirstStaysApart) {
  evict({0, 1, 1});
  schedule_.readyUs[evict({1, 1, 1})] = 10.5;
  EXPECT_EQ(rowsOfEach(), (Rows{1, 1}));
}

TEST_F(JoinRowsTest, LimitsHold) {
  evict({0, 1, 1});
  evict({large_, 0, 4});
  evict({1, 1, 1});
  evict({2, 1, 1});
  EXPECT_EQ(rowsOfEach(), (Rows{3, 1}));
  EXPECT_EQ(rowsOfEach({.reach = 1, .mostBytes = 1 << 20}), (Rows{1, 1, 2}));
  EXPECT_EQ(rowsOfEach({.reach = 16, .mostBytes = smallPage}), (Rows{2, 1, 1}));
}

TEST_F(JoinRowsTest, ACopyHasSixteenRowsAtMost) {
  for (BufferIndex buffer = 0; buffer < 18; ++buffer)
    evict({buffer, 1, 1});
  EXPECT_EQ(rowsOfEach(), (Rows{16, 2}));
}

} // namespace
} // namespace pumpgraph
