// SPDX-License-Identifier: Apache-2.0
// The report for a terminal: one screen, figures first, then where the time goes and what would change it.
#include "passes/report/Comparison.h"
#include "passes/report/NodeName.h"
#include "passes/report/ReportText.h"
#include "passes/report/SearchReport.h"
#include "passes/report/Summary.h"
#include "passes/report/Units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace pumpgraph {

static constexpr std::size_t stallsShown = 5;
static constexpr std::size_t hostedShown = 5;
static constexpr std::size_t obstaclesShown = 5;
static constexpr std::size_t reasonLength = 60;
static constexpr std::size_t nameLength = 40;
static constexpr std::size_t whoLength = 60; // the last column

/// One line of figures: a heading (empty within a group), what it is, the figure, remarks.
static void addLine(ReportText &text, std::string_view heading, std::string_view label, std::string_view figure,
                    std::string_view remark = "") {
  std::string line = fmt::format("  {:<12}{:<13}{:>9}   {}", heading, label, figure, remark);
  line.erase(line.find_last_not_of(' ') + 1);
  text.add("{}\n", line);
}

static std::string timesInMemory(const Summary &summary, double microseconds) {
  return formatRatio(microseconds, summary.inMemory.totalUs) + " in-memory";
}

/// How much is known of what the nodes touch.
static void addAccesses(ReportText &text, const Summary &summary) {
  static constexpr std::array<std::string_view, 5> words = {"proved", "declared", "observed", "assumed", "allocated"};
  const std::array<std::uint64_t, 5> counts = accessesByEvidence(summary);
  std::string known;
  for (std::size_t i = 0; i < words.size(); ++i)
    if (counts[i] > 0)
      known += fmt::format("{}{} {}", known.empty() ? "" : ", ", formatCount(counts[i]), words[i]);
  if (!known.empty())
    text.add("  accesses    {}\n", known);
}

static void addMemory(ReportText &text, const Summary &summary) {
  addLine(text, "memory", "peak before", formatBytes(summary.peakBytesBefore()), "on the device without transfers");
  addLine(text, "", "budget", formatBytes(summary.budgetBytes()));
  addLine(text, "", "peak after", formatBytes(summary.prediction.peakBytes));
  if (const std::uint64_t pinnedBytes = summary.stats.hostBytes - summary.hostedBytes(); pinnedBytes > 0)
    addLine(text, "", "pinned host", formatBytes(pinnedBytes));
  if (summary.hostedBytes() > 0)
    addLine(text, "", "hosted", formatBytes(summary.hostedBytes()), "always in host memory: see below");
  if (summary.continuations() > 0)
    addLine(text, "", "renamed", formatBytes(summary.continuedBytes()),
            fmt::format("in other frames, or hosted, at another address from some node on ({})",
                        formatCount(summary.continuations(), "time")));
}

/// What stays in host memory, the largest first, and what its accesses take.
static void addHosted(ReportText &text, const Summary &summary) {
  if (summary.hostedBytes() == 0)
    return;
  const auto nodes = std::count_if(summary.hosted.byNode.begin(), summary.hosted.byNode.end(),
                                   [](const Traffic &traffic) { return traffic.total() > 0; });
  const Traffic total = summary.hosted.total();
  addLine(text, "hosted", formatCount(static_cast<std::uint64_t>(nodes), "node"),
          formatMicroseconds(summary.hostedUs()),
          fmt::format("on the link: {} up, {} down", formatBytes(total.upBytes), formatBytes(total.downBytes)));
  std::vector<std::pair<std::uint64_t, BufferIndex>> buffers;
  for (BufferIndex i = 0; i < summary.lowered.buffers.size(); ++i)
    if (const std::uint64_t bytes = hostedBytesOf(summary.lowered.buffers[i]); bytes > 0)
      buffers.emplace_back(bytes, i);
  std::stable_sort(buffers.begin(), buffers.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
  for (std::size_t i = 0; i < std::min(hostedShown, buffers.size()); ++i) {
    const auto &[bytes, index] = buffers[i];
    const Buffer &buffer = summary.lowered.buffers[index];
    text.add("    {:>8} of {:<8} \"{}\" ({})\n", formatBytes(bytes), formatBytes(buffer.size),
             shorten(buffer.name, nameLength),
             formatMicroseconds(linkUs(summary.hosted.byBuffer[index], summary.machine)));
  }
  if (buffers.size() > hostedShown)
    text.add("    and {} more\n", formatCount(buffers.size() - hostedShown));
}

static void addTimes(ReportText &text, const Summary &summary) {
  const double predictedUs = summary.prediction.totalUs;
  addLine(text, "time", "in memory", formatMicroseconds(summary.inMemory.totalUs));
  addLine(text, "", "bound", formatMicroseconds(summary.bound.totalUs), timesInMemory(summary, summary.bound.totalUs));
  addLine(text, "", "plan bound", formatMicroseconds(summary.planBound.totalUs),
          timesInMemory(summary, summary.planBound.totalUs));
  addLine(text, "", "predicted", formatMicroseconds(predictedUs),
          fmt::format("{}, {} plan bound", timesInMemory(summary, predictedUs),
                      formatRatio(predictedUs, summary.planBound.totalUs)));
}

static std::string copiesAndLoad(const Summary &summary, bool (*moves)(NodeKind), double busyUs) {
  const auto copies = std::count_if(summary.lowered.nodes.begin(), summary.lowered.nodes.end(),
                                    [&](const Node &node) { return moves(node.kind); });
  const double share = summary.prediction.totalUs > 0 ? busyUs / summary.prediction.totalUs : 0;
  return fmt::format("in {} {}, link busy {:.0f} % of the step", formatCount(static_cast<std::uint64_t>(copies)),
                     copies == 1 ? "copy" : "copies", share * 100);
}

static void addTraffic(ReportText &text, const Summary &summary) {
  const Prediction &prediction = summary.prediction;
  addLine(text, "moved", "up", formatBytes(prediction.upBytes),
          prediction.upBytes ? copiesAndLoad(summary, movesUp, prediction.upBusyUs) : "");
  addLine(text, "", "down", formatBytes(prediction.downBytes),
          prediction.downBytes ? copiesAndLoad(summary, movesDown, prediction.downBusyUs) : "");
  if (prediction.upBytes + prediction.downBytes > 0)
    addLine(text, "", "required", formatBytes(summary.required.total()),
            fmt::format("{} up, {} down; moved: {}", formatBytes(summary.required.upBytes),
                        formatBytes(summary.required.downBytes), formatRatio(summary.movedOverRequired(), 1)));
}

static std::string reasonOf(const Remakeable::Obstacle &obstacle) {
  const std::string name = shorten(demangle(obstacle.name), reasonLength);
  switch (obstacle.against) {
  case Remakeable::Against::NotPure:
    return fmt::format("\"{}\" is not known to be pure", name);
  case Remakeable::Against::Lasting:
    return fmt::format("\"{}\" writes what outlives the step, too", name);
  case Remakeable::Against::Overwritten:
    return fmt::format("\"{}\" has been written over", name);
  }
  return {};
}

/// What runs again, and what could.
static void addRepeated(ReportText &text, const Summary &summary) {
  if (const Summary::Repeated repeated = summary.repeated(); repeated.nodes > 0)
    addLine(text, "repeated", formatCount(repeated.nodes, "node"), formatMicroseconds(repeated.us),
            fmt::format("make {} again", formatBytes(repeated.bytes)));
  if (summary.stats.movesUs > 0)
    addLine(text, "", "or else", formatMicroseconds(summary.stats.movesUs),
            fmt::format("{} in-memory, by a quick plan that only moves",
                        formatRatio(summary.stats.movesUs, summary.inMemory.totalUs)));
  if (!summary.remakeable)
    return;
  const Remakeable &remakeable = *summary.remakeable;
  const Ways &ways = *summary.ways;
  addLine(text, "at the peak", "kept", formatBytes(ways.kept), "");
  addLine(text, "", "moved", formatBytes(ways.moved), "");
  addLine(text, "", "made again", formatBytes(ways.again), "");
  if (ways.hosted > 0)
    addLine(text, "", "hosted", formatBytes(ways.hosted), "");
  addLine(text, "remakeable", "at the peak", formatBytes(remakeable.again),
          fmt::format("of {}; {} of it are there before the step", formatBytes(remakeable.bytes),
                      formatBytes(remakeable.before)));
  const std::size_t shown = std::min(obstaclesShown, remakeable.obstacles.size());
  for (std::size_t i = 0; i < shown; ++i)
    text.add("    {:>8} not: {}\n", formatBytes(remakeable.obstacles[i].bytes), reasonOf(remakeable.obstacles[i]));
  if (shown < remakeable.obstacles.size())
    text.add("    and {} more\n", formatCount(remakeable.obstacles.size() - shown));
}

/// "96.0 MiB up" or "96.0 of 192 MiB up".
static std::string describeTransfer(const Node &transfer, const Buffer &buffer) {
  const char *direction = movesUp(transfer.kind) ? " up" : movesDown(transfer.kind) ? " down" : "";
  const std::string moved = formatBytes(transfer.range.size);
  const std::string of = transfer.range.size == buffer.size ? "" : " of " + formatBytes(buffer.size);
  return moved + of + direction;
}

static std::string waitsFor(const Summary &summary, const Stall &stall) {
  const Node &transfer = summary.lowered.nodes[stall.transfer];
  const Buffer &buffer = summary.lowered.buffers[stall.buffer];
  return fmt::format("\"{}\" ({})", shorten(buffer.name, nameLength), describeTransfer(transfer, buffer));
}

static void addStallTable(ReportText &text, const Summary &summary, std::size_t rows) {
  static constexpr std::string_view heading = "waits for";
  const std::vector<Stall> &stalls = summary.prediction.stalls;
  std::vector<std::string> reasons;
  std::size_t width = heading.size();
  for (std::size_t i = 0; i < rows; ++i) {
    reasons.push_back(waitsFor(summary, stalls[i]));
    width = std::max(width, reasons.back().size());
  }
  text.add("{:24}{:<{}}  who waits\n", "", heading, width);
  for (std::size_t i = 0; i < rows; ++i) {
    const Node &node = summary.lowered.nodes[stalls[i].node];
    text.add("    {:>8} at {:<8} {:<{}}  node {} \"{}\"\n", formatMicroseconds(stalls[i].durationUs),
             formatMicroseconds(stalls[i].atUs), reasons[i], width, computedNode(node),
             shorten(displayName(node), whoLength));
  }
}

static void addStalls(ReportText &text, const Summary &summary) {
  const std::vector<Stall> &stalls = summary.prediction.stalls;
  double totalUs = 0;
  for (const Stall &stall : stalls)
    totalUs += stall.durationUs;
  if (stalls.empty()) {
    addLine(text, "stalls", "none", "");
    return;
  }
  const std::size_t shown = std::min(stallsShown, stalls.size());
  addLine(text, "stalls", fmt::format("{} in all", formatCount(stalls.size())), formatMicroseconds(totalUs),
          shown < stalls.size() ? fmt::format("the {} longest:", shown) : "longest first:");
  addStallTable(text, summary, shown);
}

static void addRepeatedSweeps(ReportText &text, const Summary &summary) {
  for (const RepeatedSweeps &sweeps : summary.repeatedSweeps)
    text.add("  sweeps      {}\n", verdict(summary, sweeps));
}

static void addCheck(ReportText &text, const Summary &summary) {
  const std::string planned =
      fmt::format("planned, lowered and checked in {}", formatMicroseconds(summary.planMs * 1e3));
  if (summary.checked()) {
    text.add("  checked: correct in every legal order of execution; {}\n", planned);
    return;
  }
  text.add("  NOT CHECKED: the checker refused this plan, it must not be replayed; {}\n", planned);
  for (const Violation &violation : summary.violations)
    text.add("    {}\n", violation.message);
}

/// What each proposer of the planner's search tried, and what came of it.
static void addSearch(ReportText &text, const Summary &summary) {
  if (summary.trace.empty())
    return;
  text.add("  {:<22}{:>7}{:>7}{:>11}{:>9}\n", "search", "tried", "kept", "saved", "effort");
  for (const ProposerTotals &totals : byProposer(summary.trace))
    text.add("    {:<20}{:>7}{:>7}{:>11}{:>7.0f} %\n", totals.proposer, totals.tried, totals.kept,
             formatMicroseconds(totals.savedUs), totals.effort * 100);
}

static void addSweep(ReportText &text, const Summary &summary, const std::vector<SweepPoint> &points) {
  if (points.empty())
    return;
  text.add("\n  {:>9}{:>11}{:>11}{:>11}{:>12}{:>11}{:>11}\n", "budget", "predicted", "in-memory", "bound", "plan bound",
           "up", "down");
  for (const SweepPoint &point : points) {
    if (!point.plannable) {
      text.add("  {:>9}   no plan: {}\n", formatBytes(point.budgetBytes), point.reason);
      continue;
    }
    text.add("  {:>9}{:>11}{:>11}{:>11}{:>12}{:>11}{:>11}\n", formatBytes(point.budgetBytes),
             formatMicroseconds(point.predictedUs), formatRatio(point.predictedUs, summary.inMemory.totalUs),
             formatMicroseconds(point.boundUs), formatMicroseconds(point.planBoundUs), formatBytes(point.upBytes),
             formatBytes(point.downBytes));
  }
}

std::string toText(const Summary &summary, const std::vector<SweepPoint> &points) {
  ReportText text;
  text.add("{}: {}, {}\n", summary.captured.name, formatCount(summary.captured.nodes.size(), "node"),
           formatCount(summary.captured.buffers.size(), "buffer"));
  text.add("{}\n", verdict(summary));
  if (summary.fewNodes)
    text.add("WARNING: {}\n", warning(*summary.fewNodes));
  text.add("\n");
  addAccesses(text, summary);
  addMemory(text, summary);
  addTimes(text, summary);
  addTraffic(text, summary);
  addHosted(text, summary);
  addRepeated(text, summary);
  addLine(text, "added", formatCount(summary.lowered.nodes.size() - summary.captured.nodes.size(), "node"), "",
          formatCount(countAddedEdges(summary), "edge"));
  addStalls(text, summary);
  addRepeatedSweeps(text, summary);
  addCheck(text, summary);
  addSearch(text, summary);
  addSweep(text, summary, points);
  if (summary.comparison) {
    text.add("\n");
    text.add(comparisonTable(summary));
  }
  return text.str();
}

} // namespace pumpgraph
