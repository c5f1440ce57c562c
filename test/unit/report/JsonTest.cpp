// SPDX-License-Identifier: Apache-2.0
#include "HandMadeSummary.h"
#include "passes/report/Summary.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace pumpgraph {

using nlohmann::json;
using test::handMadeSummary;

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;

static SweepPoint plannablePoint() {
  SweepPoint point;
  point.budgetBytes = 4 * mebi;
  point.plannable = true;
  point.predictedUs = 440;
  return point;
}

TEST(JsonReport, HasTheFiguresInSecondsAndBytes) {
  const json report = json::parse(toJson(handMadeSummary()));
  EXPECT_EQ(report["name"], "four");
  EXPECT_EQ(report["accesses"],
            json::parse(R"({"proved": 0, "declared": 5, "observed": 0, "assumed": 0, "allocated": 0})"));
  EXPECT_DOUBLE_EQ(report["in_memory_s"], 400e-6);
  EXPECT_DOUBLE_EQ(report["bound_s"], 410e-6);
  EXPECT_DOUBLE_EQ(report["plan_bound_s"], 420e-6);
  EXPECT_DOUBLE_EQ(report["predicted_s"], 440e-6);
  EXPECT_EQ(report["peak_bytes_before"], 6 * mebi);
  EXPECT_EQ(report["budget_bytes"], 4 * mebi);
  EXPECT_EQ(report["peak_bytes"], 4 * mebi);
  EXPECT_EQ(report["up_bytes"], 2 * mebi);
  EXPECT_EQ(report["down_bytes"], 2 * mebi);
  EXPECT_EQ(report["limited_by"], "link up");
  EXPECT_EQ(report["checked"], true);
  EXPECT_EQ(report["evictions"], 1);
  EXPECT_EQ(report["prefetches"], 1);
  EXPECT_EQ(report["added_nodes"], 2);
  EXPECT_EQ(report["added_edges"], 4);
  EXPECT_EQ(report["enough_bytes"], nullptr);
  EXPECT_FALSE(report.contains("sweep"));
}

TEST(JsonReport, WhatMovesInVainShows) {
  Summary summary = handMadeSummary(); // moves 2 MiB each way
  json report = json::parse(toJson(summary));
  EXPECT_EQ(report["required_up_bytes"], 2 * mebi);
  EXPECT_EQ(report["required_down_bytes"], 2 * mebi);
  EXPECT_DOUBLE_EQ(report["moved_over_required"], 1.0);
  summary.required = {2 * mebi, 0};
  EXPECT_DOUBLE_EQ(json::parse(toJson(summary))["moved_over_required"], 2.0);
  summary.required = {};
  EXPECT_EQ(json::parse(toJson(summary))["moved_over_required"], nullptr);
}

TEST(JsonReport, SaysWhatIsHostedAndWhatItCosts) {
  const json report = json::parse(toJson(test::hostingSummary()));
  EXPECT_EQ(report["hosted_bytes"], 2 * mebi);
  EXPECT_EQ(report["hosted_up_bytes"], 0);
  EXPECT_EQ(report["hosted_down_bytes"], 2 * mebi);
  EXPECT_NEAR(report["hosted_link_s"], 54.47e-6, 1e-8); // at 0.7 of 55 GB/s
  ASSERT_EQ(report["hosted"].size(), 1u);
  EXPECT_EQ(report["hosted"][0]["buffer_name"], "c");
  EXPECT_EQ(report["hosted"][0]["bytes"], 2 * mebi);
  ASSERT_EQ(report["hosted_nodes"].size(), 1u);
  EXPECT_EQ(report["hosted_nodes"][0]["down_bytes"], 2 * mebi);
  EXPECT_EQ(report["hosted_nodes"][0]["time_s"], report["hosted_link_s"]);
  EXPECT_EQ(json::parse(toJson(handMadeSummary()))["hosted"], json::array());
  const json plan = json::parse(planToJson(test::hostingSummary()));
  EXPECT_EQ(plan["buffers"][2]["hosted"], json::parse(R"([{"offset": 0, "size": 2097152}])"));
}

TEST(JsonReport, StallsNameNodeTransferAndBuffer) {
  const json stalls = json::parse(toJson(handMadeSummary()))["stalls"];
  ASSERT_EQ(stalls.size(), 1u);
  EXPECT_EQ(stalls[0]["node"], 3); // among the captured nodes, not the lowered ones
  EXPECT_EQ(stalls[0]["node_name"], "read_a");
  EXPECT_EQ(stalls[0]["buffer_name"], "a");
  EXPECT_EQ(stalls[0]["direction"], "up");
  EXPECT_EQ(stalls[0]["transfer"], 4);
  EXPECT_DOUBLE_EQ(stalls[0]["at_s"], 300e-6);
  EXPECT_DOUBLE_EQ(stalls[0]["duration_s"], 40e-6);
}

// The label does not take the symbol's place, as it does for people.
TEST(JsonReport, StallsHaveSymbolAndLabel) {
  Summary summary = handMadeSummary();
  EXPECT_EQ(json::parse(toJson(summary))["stalls"][0]["node_label"], "");
  summary.lowered.nodes[summary.prediction.stalls[0].node].label = "conv2 backward";
  const json stall = json::parse(toJson(summary))["stalls"][0];
  EXPECT_EQ(stall["node_name"], "read_a");
  EXPECT_EQ(stall["node_label"], "conv2 backward");
  EXPECT_NE(timelineToJson(summary).find("\"name\":\"conv2 backward\""), std::string::npos);
}

TEST(JsonReport, RepeatedSweepsAreThereIfThereAreAny) {
  Summary summary = handMadeSummary();
  EXPECT_FALSE(json::parse(toJson(summary)).contains("repeated_sweeps"));
  summary.repeatedSweeps = {test::handMadeSweeps()};
  const json sweeps = json::parse(toJson(summary))["repeated_sweeps"];
  ASSERT_EQ(sweeps.size(), 1u);
  EXPECT_EQ(sweeps[0]["walks"], 3);
  EXPECT_EQ(sweeps[0]["kernels"], 4);
  EXPECT_EQ(sweeps[0]["first_node"], 0);
  EXPECT_EQ(sweeps[0]["last_node"], 3); // among the captured nodes, not the lowered ones
  EXPECT_EQ(sweeps[0]["state_bytes"], 6 * mebi);
  EXPECT_EQ(sweeps[0]["touched_again_bytes"], 4 * mebi);
  EXPECT_EQ(sweeps[0]["saved_up_bytes"], 2 * mebi);
  EXPECT_EQ(sweeps[0]["saved_down_bytes"], 1 * mebi);
  EXPECT_EQ(sweeps[0]["verdict"], verdict(summary, summary.repeatedSweeps[0]));
}

TEST(JsonReport, ARefusedPlanSaysWhy) {
  Summary summary = handMadeSummary();
  summary.violations.push_back({std::nullopt, std::nullopt, "page 0 of \"a\" is not current"});
  const json report = json::parse(toJson(summary));
  EXPECT_EQ(report["checked"], false);
  EXPECT_EQ(report["violations"], json::array({"page 0 of \"a\" is not current"}));
}

TEST(JsonReport, TheSweepKeepsBudgetsWithoutAPlan) {
  SweepPoint refused;
  refused.budgetBytes = 2 * mebi;
  refused.reason = "too small";
  const json points = json::parse(toJson(handMadeSummary(), {refused, plannablePoint()}))["sweep"];
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0]["plannable"], false);
  EXPECT_EQ(points[0]["reason"], "too small");
  EXPECT_FALSE(points[0].contains("predicted_s"));
  EXPECT_DOUBLE_EQ(points[1]["predicted_s"], 440e-6);
}

TEST(JsonReport, NamesThatAreNoUtf8DoNotBreakIt) {
  Summary summary = handMadeSummary();
  summary.captured.name = "bad \xff name";
  EXPECT_EQ(json::parse(toJson(summary))["name"], "bad \\xff name");
}

TEST(PlanJson, TransfersSayWhatMovesWhereAndBetweenWhat) {
  const json plan = json::parse(planToJson(handMadeSummary()));
  EXPECT_EQ(plan["page_bytes"], 2 * mebi);
  ASSERT_EQ(plan["transfers"].size(), 2u);
  const json &up = plan["transfers"][1];
  EXPECT_EQ(up["id"], 4);
  EXPECT_EQ(up["direction"], "up");
  EXPECT_EQ(up["buffer"], 0);
  EXPECT_EQ(up["offset"], 0);
  EXPECT_EQ(up["size"], 2 * mebi);
  EXPECT_EQ(up["frames"], json::array({0}));
  EXPECT_EQ(up["after"], json::array({3}));
  EXPECT_EQ(up["before"], json::array({5}));
  EXPECT_EQ(plan["transfers"][0]["direction"], "down");
}

TEST(PlanJson, EdgesSayWhereTheyComeFrom) {
  Summary summary = handMadeSummary();
  enum : NodeIndex { writeC = 3, readA = 5 };
  summary.captured.edges[2].kind = EdgeKind::Programmatic; // write_c to read_a, Full in the lowered step
  std::map<std::string, int> origins;
  const json plan = json::parse(planToJson(summary));
  for (const json &edge : plan["edges"]) {
    ++origins[edge["origin"]];
    if (edge["origin"] == "demoted") {
      EXPECT_EQ(std::make_pair(edge["from"].get<NodeIndex>(), edge["to"].get<NodeIndex>()),
                std::make_pair(NodeIndex{writeC}, NodeIndex{readA}));
    }
  }
  EXPECT_EQ(origins, (std::map<std::string, int>{{"added", 4}, {"captured", 2}, {"demoted", 1}}));
}

// They are no captured nodes: edges that were captured are still known as such.
TEST(PlanJson, RepetitionsSayWhatRunsAgain) {
  Summary summary = handMadeSummary();
  summary.lowered.nodes[0].isPure = true;
  Node &again = summary.lowered.nodes[1]; // a copy
  again = summary.lowered.nodes[0];
  again.kind = NodeKind::Rematerialize;
  again.repeats = std::exchange(again.captured, notCaptured);
  const json plan = json::parse(planToJson(summary));
  EXPECT_EQ(plan["nodes"][0]["captured"], 0);
  EXPECT_EQ(plan["nodes"][0]["repeats"], nullptr);
  EXPECT_EQ(plan["nodes"][0]["pure"], true);
  EXPECT_EQ(plan["nodes"][1]["captured"], nullptr);
  EXPECT_EQ(plan["nodes"][1]["repeats"], 0);
  EXPECT_EQ(plan["nodes"][1]["kind"], "rematerialize");
  EXPECT_EQ(plan["nodes"][1]["accesses"], plan["nodes"][0]["accesses"]);
  EXPECT_EQ(plan["nodes"][2]["pure"], false);
  EXPECT_EQ(plan["transfers"].size(), 1u);
  EXPECT_EQ(std::count_if(plan["edges"].begin(), plan["edges"].end(),
                          [](const json &edge) { return edge["origin"] == "captured"; }),
            3);
  EXPECT_EQ(countAddedEdges(summary), 4u);
}

TEST(PlanJson, AnUnknownCostIsNull) {
  Summary summary = handMadeSummary();
  summary.lowered.nodes[0].costUs = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(json::parse(planToJson(summary))["nodes"][0]["cost_us"], nullptr);
  EXPECT_EQ(json::parse(planToJson(summary))["nodes"][1]["cost_us"], 100.0);
}

TEST(TimelineJson, HasALaneForEachEngineAndTheMemory) {
  const json trace = json::parse(timelineToJson(handMadeSummary()));
  std::map<std::string, int> spansOfLane;
  std::map<int, std::string> lanes;
  int memoryPoints = 0;
  for (const json &event : trace["traceEvents"]) {
    if (event["ph"] == "M" && event["name"] == "thread_name")
      lanes[event["tid"]] = event["args"]["name"];
    if (event["ph"] == "X")
      ++spansOfLane[lanes.at(event["tid"])];
    if (event["ph"] == "C")
      ++memoryPoints;
  }
  EXPECT_EQ(spansOfLane, (std::map<std::string, int>{{"compute", 4}, {"link up", 1}, {"link down", 1}, {"stalls", 1}}));
  EXPECT_EQ(memoryPoints, 3);
}

TEST(TimelineJson, AStallPointsBackAtItsTransfer) {
  const json trace = json::parse(timelineToJson(handMadeSummary()));
  std::vector<double> arrow;
  for (const json &event : trace["traceEvents"])
    if (event["ph"] == "s" || event["ph"] == "f")
      arrow.push_back(event["ts"]);
  EXPECT_EQ(arrow, (std::vector<double>{340, 340}));
}

static void collectKeys(const json &value, std::set<std::string> &keys) {
  for (const auto &[key, member] : value.items()) {
    if (value.is_object())
      keys.insert(key);
    if (member.is_structured())
      collectKeys(member, keys);
  }
}

TEST(JsonReport, TheMachineIsInReportAndPlan) {
  Summary summary = handMadeSummary();
  summary.machine.upBytesPerSecond = 10e9;
  summary.machine.copyOverheadUs = 3;
  json machine = json::parse(toJson(summary))["machine"];
  EXPECT_EQ(machine, json::parse(planToJson(summary))["machine"]);
  EXPECT_DOUBLE_EQ(machine["up_bytes_per_second"], 10e9);
  EXPECT_DOUBLE_EQ(machine["hosted_share"], summary.machine.hostedShare);
  EXPECT_DOUBLE_EQ(machine["beside_hosted_share"], summary.machine.besideHostedShare);
  EXPECT_DOUBLE_EQ(machine["copy_overhead_s"], 3e-6);
  EXPECT_EQ(machine["host_bytes"], nullptr); // no limit
  EXPECT_FALSE(machine.contains("down_at_once"));
  EXPECT_FALSE(machine.contains("hosted_both_share"));
  summary.machine.hostBytes = mebi;
  summary.machine.downAtOnce = 4;
  summary.machine.hostedBothShare = 0.75;
  EXPECT_EQ(json::parse(toJson(summary))["machine"]["host_bytes"], mebi);
  EXPECT_EQ(json::parse(toJson(summary))["machine"]["down_at_once"], 4);
  EXPECT_EQ(json::parse(toJson(summary))["machine"]["hosted_both_share"], 0.75);
}

TEST(PlanAsJson, KeepsCapturedEdgesThatThePlanImplies) {
  Summary summary = handMadeSummary();
  EXPECT_TRUE(json::parse(planToJson(summary))["implied_edges"].empty());
  // 0 write_a, 1 the copy, 2 write_b: the plan no longer has the captured edge from 0 to 2.
  summary.captured.edges = {{0, 1, EdgeKind::Full}, {1, 2, EdgeKind::Programmatic}};
  std::erase(summary.lowered.edges, Edge{0, 2, EdgeKind::Full});
  const json implied = json::parse(planToJson(summary))["implied_edges"];
  EXPECT_EQ(implied, (json::array({{{"from", 0}, {"to", 2}, {"kind", "full"}}})));
}

// A key that is written and not described, or the other way round after a rename, is a mistake in one of the two.
TEST(ReportDocumentation, DescribesEveryKey) {
  std::ifstream file(PUMPGRAPH_REPORT_DOCUMENTATION);
  std::stringstream text;
  text << file.rdbuf();
  ASSERT_FALSE(text.str().empty());
  Summary summary = handMadeSummary();
  summary.lowered.buffers[0].resident = summary.lowered.buffers[0].mirrored = {{0, 2 * mebi}};
  summary.repeatedSweeps = {test::handMadeSweeps()};
  summary.trace = {{"shares", 2 * mebi, 0, 440, 10, true}};
  SweepPoint refused;
  std::set<std::string> keys;
  collectKeys(json::parse(toJson(summary, {plannablePoint(), refused})), keys);
  collectKeys(json::parse(planToJson(summary)), keys);
  for (const std::string &key : keys)
    EXPECT_NE(text.str().find("`" + key + "`"), std::string::npos)
        << "docs/reference/report.md does not mention `" << key << "`";
}

} // namespace pumpgraph
