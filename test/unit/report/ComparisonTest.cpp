// SPDX-License-Identifier: Apache-2.0
#include "passes/report/Comparison.h"
#include "HandMadeSummary.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <sstream>

namespace pumpgraph {

using nlohmann::json;
using test::handMadeSummary;

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;

/// A read of "a" has to wait for two batches of faults and for a block to leave.
static Simulation handMadeSimulation() {
  Simulation simulation;
  simulation.totalUs = 800;
  simulation.replaysUs = {900, 800};
  simulation.work.fetchedBytes = simulation.work.writtenBackBytes = 2 * mebi;
  simulation.work.batches = 2;
  simulation.work.evictedBlocks = 1;
  simulation.times.faultUs = 200;
  simulation.times.fetchUs = 50;
  simulation.times.writeBackUs = 150;
  simulation.stalls = {{3, 400, simulation.times}};
  simulation.footprintBytes = 6 * mebi;
  return simulation;
}

static Summary compared() {
  Summary summary = handMadeSummary();
  summary.comparison = Comparison{h200UnifiedMemory(), 4 * mebi, {{"demand paging (51 %)", handMadeSimulation()}}};
  return summary;
}

// The whole table: whoever changes it should see what it looks like.
TEST(ComparisonText, IsATableThenStalls) {
  EXPECT_EQ(comparisonToText(compared()),
            R"(four: 4 nodes, 3 buffers
  at 4.00 MiB                 step  in-memory        up      down     batches     evicted
  in memory                 400 us     1.00 x       0 B       0 B
  demand paging (51 %)      800 us     2.00 x  2.00 MiB  2.00 MiB           2           1
  plan                      440 us     1.10 x  2.00 MiB  2.00 MiB
  bound                     410 us     1.02 x
  plan bound                420 us     1.05 x
  unified memory simulated as on "h200", replay 2; evicted: blocks of 2.00 MiB

  demand paging (51 %): 1 node stalled, 400 us in all; fault handling 200 us, writing back 150 us, fetching 50.0 us
      400 us  node 3 "read_a": fault handling 200 us, writing back 150 us, fetching 50.0 us

  plan: 1 node stalled, 40.0 us in all
     40.0 us  node 3 "read_a": waits for "a", 2.00 MiB up
)");
}

// The report has stalls of its own.
TEST(ComparisonText, TheTableIsPartOfTheReport) {
  EXPECT_NE(toText(compared()).find(comparisonTable(compared()).str()), std::string::npos);
  EXPECT_EQ(toText(compared()).find("fault handling"), std::string::npos);
  EXPECT_EQ(toText(handMadeSummary()).find("demand paging"), std::string::npos);
}

// A captured step has no plan to compare with.
TEST(ComparisonText, WithoutAPlanThereIsNoRowOfIt) {
  Summary summary = compared();
  summary.lowered = {};
  for (const ComparisonRow &row : comparisonRows(summary))
    EXPECT_NE(row.name, "plan");
  EXPECT_EQ(comparisonToText(summary).find("waits for"), std::string::npos);
}

TEST(ComparisonJson, HasTheRowsInSecondsAndBytes) {
  const json comparison = json::parse(toJson(compared()))["comparison"];
  EXPECT_EQ(comparison["memory"], "h200");
  EXPECT_EQ(comparison["budget_bytes"], 4 * mebi);
  ASSERT_EQ(comparison["rows"].size(), 5U);
  EXPECT_EQ(comparison["rows"][0]["policy"], "in memory");
  const json &paging = comparison["rows"][1];
  EXPECT_EQ(paging["policy"], "demand paging (51 %)");
  EXPECT_DOUBLE_EQ(paging["step_s"], 800e-6);
  EXPECT_DOUBLE_EQ(paging["replays_s"][0], 900e-6);
  EXPECT_DOUBLE_EQ(paging["stall_s"], 400e-6);
  EXPECT_DOUBLE_EQ(paging["write_back_s"], 150e-6);
  EXPECT_EQ(paging["fault_batches"], 2);
  EXPECT_EQ(paging["footprint_bytes"], 6 * mebi);
  EXPECT_EQ(paging["stalls"][0]["node_name"], "read_a");
  EXPECT_EQ(comparison["rows"][2]["policy"], "plan");
  EXPECT_FALSE(comparison["rows"][3].contains("up_bytes")) << "a bound moves nothing";
  EXPECT_FALSE(json::parse(toJson(handMadeSummary())).contains("comparison"));
}

static void collectKeys(const json &value, std::set<std::string> &keys) {
  for (const auto &[key, inner] : value.items()) {
    if (value.is_object())
      keys.insert(key);
    if (inner.is_structured())
      collectKeys(inner, keys);
  }
}

TEST(ComparisonDocumentation, DescribesEveryKey) {
  std::ifstream file(PUMPGRAPH_REPORT_DOCUMENTATION);
  std::stringstream text;
  text << file.rdbuf();
  std::set<std::string> keys{"comparison"};
  collectKeys(json::parse(toJson(compared()))["comparison"], keys);
  for (const std::string &key : keys)
    EXPECT_NE(text.str().find("`" + key + "`"), std::string::npos)
        << "docs/reference/report.md does not mention `" << key << "`";
}

} // namespace pumpgraph
