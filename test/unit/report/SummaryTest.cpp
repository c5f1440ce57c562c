// SPDX-License-Identifier: Apache-2.0
#include "passes/report/Summary.h"
#include "HandMadeSummary.h"
#include "passes/report/Lanes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pumpgraph {

using test::handMadeSummary;

TEST(Summary, WithoutTransfersNothingLimits) {
  Summary summary = handMadeSummary();
  summary.prediction.upBytes = summary.prediction.downBytes = 0;
  EXPECT_EQ(limitedBy(summary), "nothing: everything fits");
}

TEST(Summary, HiddenTransfersLeaveComputeTheLimit) {
  Summary summary = handMadeSummary();
  summary.prediction.totalUs = summary.inMemory.totalUs * 1.009;
  EXPECT_EQ(limitedBy(summary), "compute");
  summary.prediction.totalUs = summary.inMemory.totalUs * 1.011;
  EXPECT_NE(limitedBy(summary), "compute");
}

TEST(Summary, TheBoundNamesTheLimitWhereItIsAboveInMemory) {
  Summary summary = handMadeSummary();
  summary.planBound.upUs = 1;
  summary.planBound.downUs = 20;
  EXPECT_EQ(limitedBy(summary), "link down");
  summary.planBound.bothUs = 30;
  EXPECT_EQ(limitedBy(summary), "link both ways");
  summary.planBound.upUs = 40;
  EXPECT_EQ(limitedBy(summary), "link up");
}

// What nodes read and write of hosted pages is not in the bound's shares of the link, but it is in the plan.
TEST(Summary, HostedOperandsNameTheLimitWhereTheBoundIsDueToThem) {
  Summary summary = test::hostingSummary();
  summary.prediction.stalls.clear();
  summary.planBound.totalUs = summary.inMemory.totalUs * 2;
  summary.planBound.computeUs = summary.planBound.inMemoryUs + 40;
  summary.planBound.upUs = summary.planBound.bothUs = 0;
  summary.planBound.downUs = 30;
  EXPECT_EQ(limitedBy(summary), "link down");
  for (Traffic &traffic : summary.hosted.loadByNode)
    traffic = {std::max(traffic.upBytes, traffic.downBytes), 0};
  EXPECT_EQ(limitedBy(summary), "link up");
}

// Where a perfect plan would not wait at all, the waits of this one tell which link they are for.
TEST(Summary, StallsNameTheLimitWhereTheBoundDoesNot) {
  Summary summary = handMadeSummary();
  summary.planBound.totalUs = summary.inMemory.totalUs;
  EXPECT_EQ(limitedBy(summary), "link up");

  enum : NodeIndex { down = 1, up = 4 };
  std::swap(summary.lowered.nodes[down].kind, summary.lowered.nodes[up].kind);
  EXPECT_EQ(limitedBy(summary), "link down");

  summary.prediction.nodes[down] = summary.prediction.nodes[up];
  EXPECT_EQ(limitedBy(summary), "link both ways");
}

TEST(Summary, TheVerdictIsOneSentence) {
  Summary summary = handMadeSummary();
  EXPECT_EQ(verdict(summary), "4.00 of 6.00 MiB; 1.10 x in-memory; limited by link up");
  summary.enoughBytes = std::uint64_t{6} << 20;
  EXPECT_EQ(verdict(summary), "4.00 of 6.00 MiB; 1.10 x in-memory; limited by link up; 6.00 MiB removes it");
}

TEST(Summary, AddedEdgesAreThoseTheCaptureDoesNotHave) {
  Summary summary = handMadeSummary();
  EXPECT_EQ(countAddedEdges(summary), 4u);
  // That a captured edge was left out takes nothing off.
  for (NodeIndex to = 1; to < summary.captured.nodes.size(); ++to)
    for (NodeIndex from = 0; from < to; ++from)
      if (std::none_of(summary.captured.edges.begin(), summary.captured.edges.end(),
                       [&](const Edge &edge) { return edge.from == from && edge.to == to; })) {
        summary.captured.edges.push_back({from, to, EdgeKind::Full});
        EXPECT_EQ(countAddedEdges(summary), 4u);
        return;
      }
  FAIL() << "every edge is there";
}

TEST(Summary, ASweepTellsWhatIsEnough) {
  Summary summary = handMadeSummary();
  std::vector<SweepPoint> points(4);
  for (std::size_t i = 0; i < points.size(); ++i) {
    points[i].budgetBytes = (3 + i) * (std::uint64_t{1} << 20);
    points[i].plannable = true;
    points[i].predictedUs = summary.inMemory.totalUs * 1.05;
  }
  points[0].predictedUs = summary.inMemory.totalUs; // below the summary's own budget: a freak, not an answer
  points[2].predictedUs = summary.inMemory.totalUs;
  points[2].plannable = false;
  EXPECT_FALSE(findEnough(summary, points));
  points[3].predictedUs = summary.inMemory.totalUs * 1.009;
  EXPECT_EQ(findEnough(summary, points), std::uint64_t{6} << 20);
}

TEST(Lanes, AChainNeedsOneLane) {
  const Summary summary = handMadeSummary();
  EXPECT_EQ(assignLanes(summary.lowered, summary.prediction).computeLanes, 1u);
}

TEST(Lanes, NodesSideBySideGetLanesOfTheirOwn) {
  Summary summary = handMadeSummary();
  enum : NodeIndex { writeA = 0, writeB = 2 };
  summary.prediction.nodes[writeB] = {50, 150};
  const Lanes lanes = assignLanes(summary.lowered, summary.prediction);
  EXPECT_EQ(lanes.computeLanes, 2u);
  EXPECT_EQ(lanes.laneOf[writeA], 0u);
  EXPECT_EQ(lanes.laneOf[writeB], 1u);
}

// What follows a node stays beside it, even where a lane further up is free.
TEST(Lanes, ABranchStaysInItsLane) {
  Summary summary = handMadeSummary();
  enum : NodeIndex { writeB = 2, writeC = 3 };
  summary.prediction.nodes[writeB] = {50, 150};
  summary.prediction.nodes[writeC] = {150, 250};
  EXPECT_EQ(assignLanes(summary.lowered, summary.prediction).laneOf[writeC], 1u);
  std::erase_if(summary.lowered.edges, [](const Edge &edge) { return edge.from == writeB; });
  EXPECT_EQ(assignLanes(summary.lowered, summary.prediction).laneOf[writeC], 0u);
}

} // namespace pumpgraph
