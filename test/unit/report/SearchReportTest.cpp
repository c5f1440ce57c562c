// SPDX-License-Identifier: Apache-2.0
#include "passes/report/SearchReport.h"

#include <gtest/gtest.h>

namespace pumpgraph {

// The first plan is found, not faster; a slower attempt and one without frames save nothing.
static const SearchTrace trace = {{"shares", 4096, 0, 100, 10, true},
                                  {"shares", 4096, 100, 90, 10, true},
                                  {"neighbourhood", 4096, 90, 95, 20, false},
                                  {"shares", 4096, 90, 0, 0, false},
                                  {"neighbourhood", 4096, 90, 70.5, 40, true}};

TEST(SearchReport, SumsUpByProposer) {
  const std::vector<ProposerTotals> totals = byProposer(trace);
  ASSERT_EQ(totals.size(), 2U);
  EXPECT_EQ(totals[0].proposer, "shares");
  EXPECT_EQ(totals[0].tried, 3U);
  EXPECT_EQ(totals[0].kept, 2U);
  EXPECT_DOUBLE_EQ(totals[0].savedUs, 10);
  EXPECT_DOUBLE_EQ(totals[0].effort, 0.25);
  EXPECT_EQ(totals[1].proposer, "neighbourhood");
  EXPECT_EQ(totals[1].kept, 1U);
  EXPECT_DOUBLE_EQ(totals[1].savedUs, 19.5);
}

TEST(SearchReport, WithoutAttemptsThereAreNoTotals) {
  EXPECT_TRUE(byProposer({}).empty());
  EXPECT_EQ(toCsv({}), "proposer,piece_bytes,before_us,after_us,effort,kept\n");
}

TEST(SearchReport, WritesARowForEachAttempt) {
  EXPECT_EQ(toCsv(trace), "proposer,piece_bytes,before_us,after_us,effort,kept\n"
                          "shares,4096,,100.000,10,1\n"
                          "shares,4096,100.000,90.000,10,1\n"
                          "neighbourhood,4096,90.000,95.000,20,0\n"
                          "shares,4096,90.000,,0,0\n"
                          "neighbourhood,4096,90.000,70.500,40,1\n");
}

} // namespace pumpgraph
