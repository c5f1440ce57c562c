// SPDX-License-Identifier: Apache-2.0
#include "HandMadeSummary.h"
#include "passes/report/Summary.h"

#include <gtest/gtest.h>

namespace pumpgraph {

using test::handMadeSummary;

// The whole page: whoever changes it should see what it looks like.
TEST(TextReport, IsOneScreen) {
  Summary summary = handMadeSummary();
  summary.enoughBytes = std::uint64_t{6} << 20;
  EXPECT_EQ(toText(summary), R"(four: 4 nodes, 3 buffers
4.00 of 6.00 MiB; 1.10 x in-memory; limited by link up; 6.00 MiB removes it

  accesses    5 declared
  memory      peak before   6.00 MiB   on the device without transfers
              budget        4.00 MiB
              peak after    4.00 MiB
              pinned host   2.00 MiB
  time        in memory       400 us
              bound           410 us   1.02 x in-memory
              plan bound      420 us   1.05 x in-memory
              predicted       440 us   1.10 x in-memory, 1.05 x plan bound
  moved       up            2.00 MiB   in 1 copy, link busy 9 % of the step
              down          2.00 MiB   in 1 copy, link busy 9 % of the step
              required      4.00 MiB   2.00 MiB up, 2.00 MiB down; moved: 1.00 x
  added       2 nodes                  4 edges
  stalls      1 in all       40.0 us   longest first:
                        waits for          who waits
     40.0 us at 300 us   "a" (2.00 MiB up)  node 3 "read_a"
  checked: correct in every legal order of execution; planned, lowered and checked in 1.50 ms
)");
}

TEST(TextReport, SaysHowAccessesAreKnown) {
  Summary summary = handMadeSummary();
  summary.captured.nodes[0].accesses[0].evidence = Evidence::Proved;
  summary.captured.nodes[3].accesses[0].evidence = Evidence::Assumed;
  EXPECT_NE(toText(summary).find("  accesses    1 proved, 3 declared, 1 assumed\n"), std::string::npos);
  for (Node &node : summary.captured.nodes)
    node.accesses.clear();
  EXPECT_EQ(toText(summary).find("accesses"), std::string::npos);
}

TEST(TextReport, NodesHaveTheNamesThatTheProgramGaveThem) {
  Summary summary = handMadeSummary();
  summary.lowered.nodes[summary.prediction.stalls[0].node].label = "conv2 backward (convolution_backward)";
  EXPECT_NE(toText(summary).find("\"a\" (2.00 MiB up)  node 3 \"conv2 backward (convolution_backward)\"\n"),
            std::string::npos)
      << toText(summary);
}

TEST(TextReport, ARefusedPlanIsLoud) {
  Summary summary = handMadeSummary();
  summary.violations.push_back({std::nullopt, std::nullopt, "page 0 of \"a\" is not current"});
  const std::string text = toText(summary);
  EXPECT_NE(text.find("NOT CHECKED: the checker refused this plan, it must not be replayed"), std::string::npos);
  EXPECT_NE(text.find("page 0 of \"a\" is not current"), std::string::npos);
  EXPECT_EQ(text.find("correct in every legal order"), std::string::npos);
}

TEST(TextReport, SaysWhatIsHostedAndWhatItCosts) {
  const std::string text = toText(test::hostingSummary());
  EXPECT_NE(text.find("              pinned host   2.00 MiB\n"
                      "              hosted        2.00 MiB   always in host memory: see below\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  hosted      1 node         54.5 us   on the link: 0 B up, 2.00 MiB down\n"
                      "    2.00 MiB of 2.00 MiB \"c\" (54.5 us)\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(toText(handMadeSummary()).find("hosted"), std::string::npos);
}

TEST(TextReport, WithoutStallsSaysSo) {
  Summary summary = handMadeSummary();
  summary.prediction.stalls.clear();
  const std::string text = toText(summary);
  EXPECT_NE(text.find("stalls      none"), std::string::npos);
  EXPECT_EQ(text.find("who waits"), std::string::npos);
}

TEST(TextReport, RepeatedSweepsAreALine) {
  Summary summary = handMadeSummary();
  EXPECT_EQ(toText(summary).find("sweeps"), std::string::npos);
  summary.repeatedSweeps = {test::handMadeSweeps()};
  EXPECT_NE(toText(summary).find("\n  sweeps      3 walks over 6.00 MiB of state by 4 kernels (nodes 0-3); a fused "
                                 "optimizer would walk once and move 3.00 MiB less per step\n"),
            std::string::npos)
      << toText(summary);
  summary.repeatedSweeps[0].saved = {};
  EXPECT_NE(toText(summary).find("would walk once and touch 4.00 MiB less per step\n"), std::string::npos);
}

TEST(TextReport, TheSweepIsATable) {
  SweepPoint refused;
  refused.budgetBytes = std::uint64_t{2} << 20;
  refused.reason = "too small";
  EXPECT_NE(toText(handMadeSummary(), {refused}).find("  2.00 MiB   no plan: too small\n"), std::string::npos);
}

} // namespace pumpgraph
