// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/FewNodes.h"
#include "HandMadeSummary.h"
#include "passes/report/Summary.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <limits>

namespace pumpgraph {
namespace {

Description step(std::size_t nodes, std::size_t longNodes, double longUs, double shortUs) {
  Description step;
  step.nodes.resize(nodes);
  for (std::size_t node = 0; node < nodes; ++node) {
    step.nodes[node].captured = static_cast<std::int32_t>(node);
    step.nodes[node].costUs = node % 7 == 3 && longNodes > 0 ? (--longNodes, longUs) : shortUs;
  }
  return step;
}

// As a trace was seen: of 49 kernels two have all of the time.
TEST(FewNodes, takeNearlyAllOfADamagedTrace) {
  const std::optional<FewNodes> few = findFewNodes(step(49, 2, 4950, 100.0 / 47));
  ASSERT_TRUE(few);
  EXPECT_EQ(few->nodes, 2U);
  EXPECT_EQ(few->measuredNodes, 49U);
  EXPECT_NEAR(few->share, 0.99, 1e-9);
  EXPECT_EQ(warning(*few), "2 of 49 measured nodes take 99 % of their time: the trace is damaged, and its figures are "
                           "not the step's");
  EXPECT_TRUE(findFewNodes(step(49, 2, 4950, 0))) << "those that lost their time";
}

TEST(FewNodes, areTooManyInOthers) {
  EXPECT_FALSE(findFewNodes(step(49, 3, 4950, 1))) << "6 %";
  EXPECT_FALSE(findFewNodes(step(49, 2, 450, 100.0 / 47))) << "90 % of the time";
  EXPECT_FALSE(findFewNodes(step(19, 1, 4950, 1))) << "one of few may well take all";
  EXPECT_TRUE(findFewNodes(step(20, 1, 4950, 1)));
  EXPECT_FALSE(findFewNodes(step(49, 0, 0, 1)));
  EXPECT_FALSE(findFewNodes(step(49, 0, 0, 0))) << "no time at all";
  EXPECT_FALSE(findFewNodes({}));
}

// A time that nobody measured says nothing of the trace.
TEST(FewNodes, areOfThoseThatWereMeasured) {
  Description partly = step(49, 2, 4950, 1);
  for (std::size_t node = 30; node < partly.nodes.size(); ++node)
    partly.nodes[node].costUs = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(findFewNodes(partly)) << "2 of 30";
  partly = step(400, 2, 4950, 1);
  for (std::size_t node = 100; node < partly.nodes.size(); ++node)
    partly.nodes[node].costUs = std::numeric_limits<double>::quiet_NaN();
  const std::optional<FewNodes> few = findFewNodes(partly);
  ASSERT_TRUE(few);
  EXPECT_EQ(few->measuredNodes, 100U);
}

TEST(FewNodes, areToldByEveryReport) {
  Summary summary = test::handMadeSummary();
  EXPECT_EQ(toText(summary).find("measured nodes"), std::string::npos);
  EXPECT_EQ(toHtml(summary, {}).find("measured nodes"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(toJson(summary)).at("few_nodes").is_null());
  summary.fewNodes = FewNodes{2, 49, 0.994};
  EXPECT_NE(toText(summary).find("\nWARNING: 2 of 49 measured nodes take 99 % of their time: the trace is damaged"),
            std::string::npos);
  EXPECT_NE(toHtml(summary, {}).find("2 of 49 measured nodes take 99 % of their time"), std::string::npos);
  const nlohmann::json json = nlohmann::json::parse(toJson(summary)).at("few_nodes");
  EXPECT_EQ(json.at("nodes"), 2);
  EXPECT_EQ(json.at("measured_nodes"), 49);
  EXPECT_EQ(json.at("share"), 0.994);
  EXPECT_EQ(json.at("warning"), warning(*summary.fewNodes));
}

} // namespace
} // namespace pumpgraph
