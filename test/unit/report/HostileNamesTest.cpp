// SPDX-License-Identifier: Apache-2.0
// Names come from binaries, files and programs. No report is to obey one: not as a terminal, not as a browser, and not
// as a line of its own. test/tools/pump-graph-opt/hostile-names.test asks the tool which reports there are.
#include "HandMadeSummary.h"
#include "passes/report/Comparison.h"
#include "passes/report/Summary.h"
#include "passes/report/Units.h"
#include "pumpgraph/graph/Printable.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace pumpgraph {
namespace {

/// What could do harm in any report, at both ends, where shortening leaves it.
const std::string hostile = "\x1b]0;a\x07\n\rchecked: \xe2\x80\xae\xe2\x81\xa6\x7f\xc2\x9b\xff"
                            "</script><img src=x onerror=alert(1)>\"'&{{js}}-->\xe2\x80\xa8\x1b[2J";

/// A summary of which every string that comes from outside is `name`.
Summary withNames(const std::string &name) {
  Summary summary = test::hostingSummary();
  for (Description *step : {&summary.captured, &summary.planned, &summary.lowered}) {
    step->name = name;
    for (Buffer &buffer : step->buffers)
      buffer.name = name;
    for (Node &node : step->nodes)
      node.name = node.label = node.reason = name;
  }
  if (summary.prediction.stalls.empty())
    summary.prediction.stalls = test::handMadeSummary().prediction.stalls;
  summary.violations.push_back({std::nullopt, std::nullopt, name});
  summary.fewNodes = FewNodes{2, 49, 0.99};
  summary.comparison = Comparison{h200UnifiedMemory(), std::uint64_t{4} << 20, {{name, Simulation{}}}};
  summary.comparison->memory.name = name;
  return summary;
}

std::vector<SweepPoint> points(const std::string &name) {
  SweepPoint refused, good;
  refused.budgetBytes = std::uint64_t{2} << 20;
  refused.reason = name;
  good.budgetBytes = std::uint64_t{4} << 20;
  good.plannable = true;
  good.predictedUs = good.boundUs = good.planBoundUs = 400;
  return {refused, good};
}

struct ReportKind {
  const char *name;
  std::function<std::string(const std::string &name)> render;
};

/// Every function that makes text of a summary. Figures.cpp's sentences hold no names.
const std::vector<ReportKind> kinds{
    {"text", [](const std::string &name) { return toText(withNames(name), points(name)); }},
    {"json", [](const std::string &name) { return toJson(withNames(name), points(name)); }},
    {"html", [](const std::string &name) { return toHtml(withNames(name), points(name)); }},
    {"svg", [](const std::string &name) { return toSvg(withNames(name), points(name)); }},
    {"plan", [](const std::string &name) { return planToJson(withNames(name)); }},
    {"timeline", [](const std::string &name) { return timelineToJson(withNames(name)); }},
    {"comparison", [](const std::string &name) { return comparisonToText(withNames(name)); }},
    {"comparison as json", [](const std::string &name) { return comparisonToJson(withNames(name)); }}};

bool isPrintableText(const std::string &text) {
  return printable(text, [](std::string_view bytes) { return bytes == "\n" ? "\n" : "\x1b"; }) == text;
}

std::size_t count(const std::string &text, std::string_view what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size()))
    ++found;
  return found;
}

TEST(HostileNames, areObeyedByNoReport) {
  for (const ReportKind &kind : kinds) {
    const std::string plain = kind.render("plain"), text = kind.render(hostile);
    EXPECT_TRUE(isPrintableText(text)) << kind.name << ": " << printable(text);
    EXPECT_EQ(count(text, "\n"), count(plain, "\n")) << kind.name << ": a name makes no lines";
    EXPECT_GT(count(text, "\\x1b") + count(text, "\\\\x1b"), 0U) << kind.name << " is to show names";
  }
}

// No element and no attribute begins or ends in a name, and no data element ends early.
TEST(HostileNames, areNoMarkup) {
  for (const ReportKind &kind : kinds) {
    const std::string plain = kind.render("plain"), text = kind.render(hostile);
    if (!plain.starts_with("<"))
      continue;
    for (const char *mark : {"<", "<img", "<script", "</script", "<!--"})
      EXPECT_EQ(count(text, mark), count(plain, mark)) << kind.name << ": " << mark;
  }
}

// What programs read is as printable as what people read: they print it too.
TEST(HostileNames, arePrintableInWhatProgramsRead) {
  const std::function<void(const nlohmann::json &)> look = [&](const nlohmann::json &json) {
    const std::string text = json.is_string() ? json.get<std::string>() : "";
    EXPECT_EQ(text, printable(text));
    for (const auto &part : json)
      if (json.is_structured())
        look(part);
  };
  for (const ReportKind &kind : kinds)
    if (const std::string text = kind.render(hostile); text.starts_with("{"))
      look(nlohmann::json::parse(text));
  const std::string page = toHtml(withNames(hostile), points(hostile));
  static constexpr std::string_view open = "<script type=\"application/json\" id=\"data\">";
  const std::size_t start = page.find(open) + open.size();
  look(nlohmann::json::parse(page.substr(start, page.find("</script>", start) - start)));
}

// A name is shortened between characters: half of one is no text.
TEST(HostileNames, areShortenedBetweenCharacters) {
  std::string name;
  for (int i = 0; i < 40; ++i)
    name += "\xe6\xbc\xa2";
  for (std::size_t length = 0; length < name.size() + 4; ++length) {
    const std::string shown = shorten(name, length);
    EXPECT_LE(shown.size(), length);
    EXPECT_EQ(shown, printable(shown)) << length;
  }
  EXPECT_EQ(shorten("\n", 40), "\\x0a");
}

} // namespace
} // namespace pumpgraph
