// SPDX-License-Identifier: Apache-2.0
// The comparison for a terminal.
#include "passes/report/Comparison.h"
#include "passes/report/NodeName.h"
#include "passes/report/ReportText.h"
#include "passes/report/Units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace pumpgraph {

static constexpr std::size_t stallsShown = 3;
static constexpr std::size_t nameLength = 40;

std::vector<ComparisonRow> comparisonRows(const Summary &summary) {
  assert(summary.comparison && "nothing was compared");
  std::vector<ComparisonRow> rows{{"in memory", summary.inMemory.totalUs, 0, 0, nullptr, false}};
  for (const ComparedPolicy &policy : summary.comparison->policies) {
    const Simulation &simulation = policy.simulation;
    rows.push_back({policy.name, simulation.totalUs, simulation.work.fetchedBytes, simulation.work.writtenBackBytes,
                    &simulation, false});
  }
  if (summary.budgetBytes() > 0)
    rows.push_back(
        {"plan", summary.prediction.totalUs, summary.prediction.upBytes, summary.prediction.downBytes, nullptr, false});
  rows.push_back({"bound", summary.bound.totalUs, 0, 0, nullptr, true});
  rows.push_back({"plan bound", summary.planBound.totalUs, 0, 0, nullptr, true});
  return rows;
}

static void addRow(ReportText &text, const Summary &summary, const ComparisonRow &row) {
  std::string line = fmt::format("  {:<22}{:>10}{:>11}", row.name, formatMicroseconds(row.stepUs),
                                 formatRatio(row.stepUs, summary.inMemory.totalUs));
  if (!row.isBound)
    line += fmt::format("{:>10}{:>10}", formatBytes(row.upBytes), formatBytes(row.downBytes));
  if (row.simulation)
    line += fmt::format("{:>12}{:>12}", formatCount(row.simulation->work.batches),
                        formatCount(row.simulation->work.evictedBlocks));
  text.add("{}\n", line);
}

/// "fault handling 1.20 s, fetching 300 ms", longest first.
static std::string describe(const PagingTimes &times) {
  std::vector<std::pair<double, const char *>> causes{{times.faultUs, "fault handling"},
                                                      {times.fetchUs, "fetching"},
                                                      {times.populateUs, "first touches"},
                                                      {times.writeBackUs, "writing back"}};
  std::erase_if(causes, [](const auto &cause) { return cause.first <= 0; });
  std::stable_sort(causes.begin(), causes.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
  std::string text;
  for (const auto &[us, name] : causes)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, formatMicroseconds(us));
  return text.empty() ? "waiting for another node's faults" : text;
}

/// "demand paging (51 %): 2 nodes stalled, 400 us in all".
static void addHeading(ReportText &text, const std::string &name, std::size_t stalls, double totalUs) {
  text.add("\n  {}: {} stalled, {} in all", name, formatCount(stalls, "node"), formatMicroseconds(totalUs));
}

static void addStall(ReportText &text, double durationUs, const Node &node, const std::string &reason) {
  text.add("    {:>8}  node {} \"{}\": {}\n", formatMicroseconds(durationUs), computedNode(node),
           shorten(displayName(node), nameLength), reason);
}

static void addPagingStalls(ReportText &text, const Summary &summary, const ComparisonRow &row) {
  const std::vector<PagingStall> &stalls = row.simulation->stalls;
  if (stalls.empty())
    return;
  addHeading(text, row.name, stalls.size(), row.simulation->stallUs());
  text.add("; {}\n", describe(row.simulation->times));
  for (std::size_t i = 0; i < std::min(stallsShown, stalls.size()); ++i)
    addStall(text, stalls[i].durationUs, summary.captured.nodes[stalls[i].node], describe(stalls[i].times));
}

static void addPlanStalls(ReportText &text, const Summary &summary) {
  const std::vector<Stall> &stalls = summary.prediction.stalls;
  if (summary.budgetBytes() == 0 || stalls.empty())
    return;
  double totalUs = 0;
  for (const Stall &stall : stalls)
    totalUs += stall.durationUs;
  addHeading(text, "plan", stalls.size(), totalUs);
  text.add("\n");
  for (std::size_t i = 0; i < std::min(stallsShown, stalls.size()); ++i) {
    const Node &transfer = summary.lowered.nodes[stalls[i].transfer];
    const std::string &buffer = summary.lowered.buffers[stalls[i].buffer].name;
    addStall(text, stalls[i].durationUs, summary.lowered.nodes[stalls[i].node],
             fmt::format("waits for \"{}\", {}{}", shorten(buffer, nameLength), formatBytes(transfer.range.size),
                         movesUp(transfer.kind)     ? " up"
                         : movesDown(transfer.kind) ? " down"
                                                    : ""));
  }
}

ReportText comparisonTable(const Summary &summary) {
  const UnifiedMemory &memory = summary.comparison->memory;
  ReportText text;
  text.add("  {:<22}{:>10}{:>11}{:>10}{:>10}{:>12}{:>12}\n", "at " + formatBytes(summary.comparison->budgetBytes),
           "step", "in-memory", "up", "down", "batches", "evicted");
  for (const ComparisonRow &row : comparisonRows(summary))
    addRow(text, summary, row);
  text.add("  unified memory simulated as on \"{}\", replay {}; evicted: blocks of {}\n", memory.name, memory.replays,
           formatBytes(blockBytes));
  return text;
}

std::string comparisonToText(const Summary &summary) {
  ReportText text;
  text.add("{}: {}, {}\n", summary.captured.name, formatCount(summary.captured.nodes.size(), "node"),
           formatCount(summary.captured.buffers.size(), "buffer"));
  text.add(comparisonTable(summary));
  for (const ComparisonRow &row : comparisonRows(summary))
    if (row.simulation)
      addPagingStalls(text, summary, row);
  addPlanStalls(text, summary);
  return text.str();
}

} // namespace pumpgraph
