// SPDX-License-Identifier: Apache-2.0
// The HTML report: one page without anything outside it. Figures, curve and table are written here, so that they are
// there without JavaScript; the timeline is drawn by page/page.js from the JSON that pageData() makes.
#include "passes/report/CurveSvg.h"
#include "passes/report/Lanes.h"
#include "passes/report/NodeName.h"
#include "passes/report/Page.h"
#include "passes/report/SearchReport.h"
#include "passes/report/Summary.h"
#include "passes/report/Units.h"
#include "pumpgraph/graph/PrintableJson.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace pumpgraph {

using Json = nlohmann::ordered_json;

/// The table stays a table; the timeline and the JSON report have all of them.
static constexpr std::size_t stallRows = 40;

/// Nanoseconds are enough for a drawing and keep the page small.
static double rounded(double microseconds) {
  return std::round(microseconds * 1e3) / 1e3;
}

/// Units as print has them: "µs" and "×".
static std::string typographic(std::string text) {
  const auto replace = [&](std::string_view from, std::string_view to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  };
  replace(" us", " µs");
  replace(" x", " ×");
  return text;
}

static std::string timeOf(double microseconds) {
  return typographic(formatMicroseconds(microseconds));
}

namespace {

/// Names that occur many times are stored once and referred to by number: in short, and, where it says more, what was
/// captured in full.
class NameTable {
public:
  std::size_t indexOf(const Node &node) {
    const std::string key = node.name.empty() ? kindName(node.kind) : node.name;
    const auto [place, isNew] = indices_.try_emplace({node.label, key}, indices_.size());
    if (isNew)
      add(displayName(node), demangle(key));
    return place->second;
  }
  const Json &names() const { return names_; }

private:
  void add(const std::string &display, const std::string &full) {
    names_.push_back(full == display ? Json::array({display}) : Json::array({display, full}));
  }

  std::map<std::pair<std::string, std::string>, std::size_t> indices_; ///< by label and name
  Json names_ = Json::array();
};

} // namespace

static Json computeData(const Summary &summary, const Lanes &lanes, NameTable &names) {
  std::vector<double> start, end;
  std::vector<std::size_t> name;
  std::vector<std::uint32_t> lane;
  std::vector<std::int32_t> captured;
  std::vector<int> again;
  for (NodeIndex i = 0; i < summary.lowered.nodes.size(); ++i) {
    const Node &node = summary.lowered.nodes[i];
    const auto [startUs, endUs] = summary.prediction.nodes[i];
    if (isAdded(node.kind) || endUs <= startUs)
      continue;
    start.push_back(rounded(startUs));
    end.push_back(rounded(endUs));
    name.push_back(names.indexOf(node));
    lane.push_back(lanes.laneOf[i]);
    captured.push_back(computedNode(node));
    again.push_back(node.kind == NodeKind::Rematerialize ? 1 : 0);
  }
  return {{"start", start}, {"end", end}, {"name", name}, {"lane", lane}, {"node", captured}, {"again", again}};
}

/// `positions` receives where each transfer went, by its NodeIndex.
static Json transferData(const Summary &summary, std::map<NodeIndex, std::size_t> &positions) {
  std::vector<double> start, end;
  std::vector<int> up;
  std::vector<BufferIndex> buffer;
  std::vector<std::uint64_t> offset, bytes;
  for (NodeIndex i = 0; i < summary.lowered.nodes.size(); ++i) {
    const Node &node = summary.lowered.nodes[i];
    if (!movesUp(node.kind) && !movesDown(node.kind))
      continue;
    positions.emplace(i, start.size());
    start.push_back(rounded(summary.prediction.nodes[i].startUs));
    end.push_back(rounded(summary.prediction.nodes[i].endUs));
    up.push_back(movesUp(node.kind));
    buffer.push_back(node.buffer);
    offset.push_back(node.range.offset);
    bytes.push_back(node.range.size);
  }
  return {{"start", start}, {"end", end}, {"up", up}, {"buffer", buffer}, {"offset", offset}, {"bytes", bytes}};
}

static Json stallData(const Summary &summary, const Lanes &lanes, NameTable &names,
                      const std::map<NodeIndex, std::size_t> &transfers) {
  std::vector<double> at, duration;
  std::vector<std::int64_t> transfer;
  std::vector<BufferIndex> buffer;
  std::vector<std::int32_t> node;
  std::vector<std::size_t> name;
  std::vector<std::uint32_t> lane;
  for (const Stall &stall : summary.prediction.stalls) {
    const auto place = transfers.find(stall.transfer);
    at.push_back(rounded(stall.atUs));
    duration.push_back(rounded(stall.durationUs));
    transfer.push_back(place == transfers.end() ? -1 : static_cast<std::int64_t>(place->second));
    buffer.push_back(stall.buffer);
    node.push_back(computedNode(summary.lowered.nodes[stall.node]));
    name.push_back(names.indexOf(summary.lowered.nodes[stall.node]));
    lane.push_back(lanes.laneOf[stall.node]);
  }
  return {{"at", at},     {"duration", duration}, {"transfer", transfer}, {"buffer", buffer},
          {"node", node}, {"name", name},         {"lane", lane}};
}

static Json memoryData(const Prediction &prediction) {
  std::vector<double> times;
  std::vector<std::uint64_t> bytes;
  for (const MemoryPoint &point : prediction.memory) {
    times.push_back(rounded(point.atUs));
    bytes.push_back(point.bytes);
  }
  return {times, bytes};
}

/// What page.js draws. Columns instead of records: a third of the size.
static std::string pageData(const Summary &summary) {
  const Lanes lanes = assignLanes(summary.lowered, summary.prediction);
  NameTable names;
  std::map<NodeIndex, std::size_t> transferPositions;
  Json compute = computeData(summary, lanes, names);
  Json transfers = transferData(summary, transferPositions);
  Json stalls = stallData(summary, lanes, names, transferPositions);
  Json buffers = Json::array();
  for (const Buffer &buffer : summary.lowered.buffers)
    buffers.push_back({buffer.name, buffer.size});
  const Json data{{"totalUs", rounded(summary.prediction.totalUs)},
                  {"inMemoryUs", rounded(summary.inMemory.totalUs)},
                  {"budget", summary.budgetBytes()},
                  {"peakBefore", summary.peakBytesBefore()},
                  {"computeLanes", lanes.computeLanes},
                  {"compute", std::move(compute)},
                  {"transfers", std::move(transfers)},
                  {"stalls", std::move(stalls)},
                  {"before", memoryData(summary.inMemory)},
                  {"after", memoryData(summary.prediction)},
                  {"buffers", std::move(buffers)},
                  {"names", names.names()}};
  const std::string text = dumpPrintable(data, -1);
  // Inside a script element "</script>" would end it and "<!--" would change how it is read: spell "<" otherwise.
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text)
    safe += c == '<' ? std::string_view("\\u003c") : std::string_view(&c, 1);
  return safe;
}

static std::string tile(std::string_view label, std::string_view figure, std::string_view remark) {
  return fmt::format("<div class=\"tile\"><p class=\"label\">{}</p><p class=\"figure\">{}</p><p "
                     "class=\"remark\">{}</p></div>\n",
                     label, escapeMarkup(figure), escapeMarkup(remark));
}

static std::string tiles(const Summary &summary) {
  const Prediction &prediction = summary.prediction;
  const auto inMemory = [&](double us) {
    return typographic(formatRatio(us, summary.inMemory.totalUs)) + " in-memory";
  };
  const auto load = [&](double busyUs) {
    return prediction.totalUs > 0 ? fmt::format("link busy {:.0f} % of the step", 100 * busyUs / prediction.totalUs)
                                  : "";
  };
  double stalledUs = 0;
  for (const Stall &stall : prediction.stalls)
    stalledUs += stall.durationUs;
  std::string out;
  out += tile(
      "peak device memory", formatBytes(prediction.peakBytes),
      fmt::format("budget {}, before {}", formatBytes(summary.budgetBytes()), formatBytes(summary.peakBytesBefore())));
  out += tile("step, predicted", timeOf(prediction.totalUs),
              fmt::format("{}, in memory {}", inMemory(prediction.totalUs), timeOf(summary.inMemory.totalUs)));
  out += tile(
      "plan bound", timeOf(summary.planBound.totalUs),
      fmt::format("predicted is {} that", typographic(formatRatio(prediction.totalUs, summary.planBound.totalUs))));
  out += tile("bound", timeOf(summary.bound.totalUs), inMemory(summary.bound.totalUs) + ", no plan is faster");
  out += tile("moved up", formatBytes(prediction.upBytes), load(prediction.upBusyUs));
  out += tile("moved down", formatBytes(prediction.downBytes), load(prediction.downBusyUs));
  if (summary.hostedBytes() > 0)
    out += tile("always in host memory", formatBytes(summary.hostedBytes()),
                fmt::format("its accesses take {} of the link", timeOf(summary.hostedUs())));
  if (summary.continuations() > 0)
    out += tile(
        "at another address", formatBytes(summary.continuedBytes()),
        fmt::format("in other frames, or hosted, from some node on: {}", formatCount(summary.continuations(), "time")));
  out += tile("limited by", limitedBy(summary) == "nothing: everything fits" ? "nothing" : limitedBy(summary),
              summary.enoughBytes ? fmt::format("{} removes it", formatBytes(*summary.enoughBytes)) : "");
  out += tile("stalls", formatCount(prediction.stalls.size()), timeOf(stalledUs) + " in all");
  for (const RepeatedSweeps &sweeps : summary.repeatedSweeps)
    out += tile("sweeps", formatCount(sweeps.sweeps), verdict(summary, sweeps));
  return out;
}

static std::string curveCard(const Summary &summary, const std::vector<SweepPoint> &points) {
  if (std::none_of(points.begin(), points.end(), [](const SweepPoint &point) { return point.plannable; }))
    return "";
  CurveOptions wide{1160, 420, false};
  CurveOptions narrow{420, 400, false};
  return "<section class=\"card\" aria-labelledby=\"curve-title\">\n<h2 id=\"curve-title\">Step time against device "
         "memory budget</h2>\n" +
         curveSvg(summary, points, wide) + curveSvg(summary, points, narrow) + "</section>\n";
}

static std::string stallRow(const Summary &summary, std::size_t index) {
  const Stall &stall = summary.prediction.stalls[index];
  const Node &node = summary.lowered.nodes[stall.node];
  const Node &transfer = summary.lowered.nodes[stall.transfer];
  const Buffer &buffer = summary.lowered.buffers[stall.buffer];
  const NodeTimes &times = summary.prediction.nodes[stall.transfer];
  const char *what = movesUp(transfer.kind) ? "up" : movesDown(transfer.kind) ? "down" : "hand-over";
  return fmt::format("<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"name\">{} <span>of {}"
                     "</span></td><td class=\"name\">{} <span>node {}</span></td><td class=\"number\">{} {}, {} to {}"
                     "</td><td><button type=\"button\" data-stall=\"{}\">show</button></td></tr>\n",
                     timeOf(stall.durationUs), timeOf(stall.atUs), escapeMarkup(buffer.name), formatBytes(buffer.size),
                     escapeMarkup(shorten(displayName(node), 72)), computedNode(node), formatBytes(transfer.range.size),
                     what, timeOf(times.startUs), timeOf(times.endUs), index);
}

static std::string stallTable(const Summary &summary) {
  if (summary.prediction.stalls.empty())
    return "<p>No node waits for a transfer.</p>\n";
  std::string table = "<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">stall</th><th scope=\"col\">at</th>"
                      "<th scope=\"col\">waits for</th><th scope=\"col\">who waits</th><th scope=\"col\">transfer</th>"
                      "<th scope=\"col\">timeline</th></tr></thead>\n<tbody>\n";
  const std::size_t shown = std::min(stallRows, summary.prediction.stalls.size());
  for (std::size_t i = 0; i < shown; ++i)
    table += stallRow(summary, i);
  return table + "</tbody></table></div>\n";
}

static std::string stallsTitle(const Summary &summary) {
  const std::size_t count = summary.prediction.stalls.size();
  return count > stallRows ? fmt::format("The {} longest of {} stalls", stallRows, formatCount(count)) : "Stalls";
}

static std::string hostedTable(const Summary &summary) {
  if (summary.hostedBytes() == 0)
    return "";
  std::string rows;
  for (BufferIndex i = 0; i < summary.lowered.buffers.size(); ++i) {
    const Buffer &buffer = summary.lowered.buffers[i];
    if (buffer.hosted.empty())
      continue;
    const Traffic &traffic = summary.hosted.byBuffer[i];
    rows += fmt::format("<tr><td class=\"name\">{} <span>of {}</span></td><td class=\"number\">{}</td><td "
                        "class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n",
                        escapeMarkup(buffer.name), formatBytes(buffer.size), formatBytes(hostedBytesOf(buffer)),
                        formatBytes(traffic.upBytes), formatBytes(traffic.downBytes),
                        timeOf(linkUs(traffic, summary.machine)));
  }
  return "<section class=\"card\">\n<h2>Always in host memory</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th "
         "scope=\"col\">buffer</th><th scope=\"col\">in host memory</th><th scope=\"col\">read a step</th><th "
         "scope=\"col\">written a step</th><th scope=\"col\">time on the link</th></tr></thead>\n<tbody>\n" +
         rows + "</tbody></table></div>\n</section>\n";
}

static std::string searchTable(const Summary &summary) {
  if (summary.trace.empty())
    return "";
  std::string rows;
  for (const ProposerTotals &totals : byProposer(summary.trace))
    rows += fmt::format("<tr><td class=\"name\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td "
                        "class=\"number\">{}</td><td class=\"number\">{:.0f} %</td></tr>\n",
                        escapeMarkup(totals.proposer), formatCount(totals.tried), formatCount(totals.kept),
                        timeOf(totals.savedUs), totals.effort * 100);
  return "<section class=\"card\">\n<h2>The planner's search</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th "
         "scope=\"col\">proposer</th><th scope=\"col\">tried</th><th scope=\"col\">kept</th><th "
         "scope=\"col\">saved</th><th scope=\"col\">effort</th></tr></thead>\n<tbody>\n" +
         rows + "</tbody></table></div>\n</section>\n";
}

static std::string checkBadge(const Summary &summary) {
  if (summary.checked())
    return "<p class=\"check good\">checked: correct in every legal order of execution</p>";
  std::string reasons;
  for (const Violation &violation : summary.violations)
    reasons += "<br>" + escapeMarkup(violation.message);
  return "<p class=\"check bad\">not checked: the checker refused this plan, it must not be replayed" + reasons +
         "</p>";
}

static std::string warnings(const Summary &summary) {
  return summary.fewNodes ? "<p class=\"check bad\">" + escapeMarkup(warning(*summary.fewNodes)) + "</p>" : "";
}

static std::string footer(const Summary &summary) {
  return fmt::format("{} and {} captured; {} and {} added; planned, lowered and checked in "
                     "{}. Machine: {:.1f} "
                     "GB/s up, {:.1f} GB/s down, {:.1f} GB/s both ways together. Times are predicted, not measured.",
                     formatCount(summary.captured.nodes.size(), "node"),
                     formatCount(summary.captured.buffers.size(), "buffer"),
                     formatCount(summary.lowered.nodes.size() - summary.captured.nodes.size(), "node"),
                     formatCount(countAddedEdges(summary), "edge"), timeOf(summary.planMs * 1e3),
                     summary.machine.upBytesPerSecond / 1e9, summary.machine.downBytesPerSecond / 1e9,
                     summary.machine.bothBytesPerSecond / 1e9);
}

/// Fills the {{slots}} of the template in one pass, so that nothing inside a value is taken for a slot.
static std::string fill(std::string_view page, const std::map<std::string_view, std::string> &slots) {
  std::string out;
  while (true) {
    const std::size_t open = page.find("{{");
    if (open == std::string_view::npos)
      return out.append(page);
    const std::size_t close = page.find("}}", open);
    assert(close != std::string_view::npos && "page.html has an unclosed slot");
    const auto slot = slots.find(page.substr(open + 2, close - open - 2));
    assert(slot != slots.end() && "page.html has a slot that nobody fills");
    out.append(page.substr(0, open)).append(slot->second);
    page.remove_prefix(close + 2);
  }
}

std::string toHtml(const Summary &summary, const std::vector<SweepPoint> &points) {
  return fill(pageHtml(), {{"name", escapeMarkup(summary.captured.name)},
                           {"verdict", escapeMarkup(typographic(verdict(summary)))},
                           {"check", checkBadge(summary) + warnings(summary)},
                           {"tiles", tiles(summary)},
                           {"curve", curveCard(summary, points)},
                           {"stalls-title", stallsTitle(summary)},
                           {"stalls", stallTable(summary)},
                           {"hosted", hostedTable(summary)},
                           {"search", searchTable(summary)},
                           {"footer", footer(summary)},
                           {"data", pageData(summary)},
                           {"css", std::string(pageCss())},
                           {"js", std::string(pageJs())}});
}

} // namespace pumpgraph
