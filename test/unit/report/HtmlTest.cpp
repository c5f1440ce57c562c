// SPDX-License-Identifier: Apache-2.0
#include "HandMadeSummary.h"
#include "passes/report/CurveSvg.h"
#include "passes/report/Summary.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pumpgraph {

using nlohmann::json;
using test::handMadeSummary;

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;

static std::vector<SweepPoint> twoPoints() {
  SweepPoint small, large;
  small.budgetBytes = 4 * mebi;
  small.plannable = true;
  small.predictedUs = 440;
  small.planBoundUs = 420;
  small.boundUs = 410;
  large = small;
  large.budgetBytes = 6 * mebi;
  large.predictedUs = large.planBoundUs = large.boundUs = 400;
  return {small, large};
}

static std::size_t count(std::string_view text, std::string_view what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size()))
    ++found;
  return found;
}

static json dataOf(const std::string &page) {
  static constexpr std::string_view open = "<script type=\"application/json\" id=\"data\">";
  const std::size_t start = page.find(open) + open.size();
  return json::parse(page.substr(start, page.find("</script>", start) - start));
}

TEST(HtmlReport, ListsWhatIsHosted) {
  const std::string page = toHtml(test::hostingSummary(), {});
  EXPECT_NE(page.find("<h2>Always in host memory</h2>"), std::string::npos);
  EXPECT_NE(page.find("<td class=\"name\">c <span>of 2.00 MiB</span>"), std::string::npos);
  EXPECT_EQ(toHtml(handMadeSummary(), {}).find("lways in host memory"), std::string::npos);
}

// Two nodes of one kernel with two labels have two names; what was captured is said in full.
TEST(HtmlReport, NodesHaveTheNamesThatTheProgramGaveThem) {
  Summary summary = handMadeSummary();
  Node &waits = summary.lowered.nodes[summary.prediction.stalls[0].node];
  waits.label = "conv2 <backward>";
  for (Node &node : summary.lowered.nodes)
    if (!isAdded(node.kind))
      node.name = "gemm";
  const std::string page = toHtml(summary, {});
  EXPECT_NE(page.find("<td class=\"name\">conv2 &lt;backward&gt; <span>node 3</span>"), std::string::npos);
  EXPECT_EQ(dataOf(page)["names"], json::parse(R"([["gemm"], ["conv2 <backward>", "gemm"]])"));
}

TEST(HtmlReport, NeedsNothingFromOutside) {
  const std::string page = toHtml(handMadeSummary(), twoPoints());
  for (const char *outside : {" src=", " href=", "@import", "url(http", "fetch("})
    EXPECT_EQ(count(page, outside), 0u) << outside;
  // The only address is the name of the SVG language, once per curve.
  EXPECT_EQ(count(page, "http"), count(page, "http://www.w3.org/2000/svg"));
}

TEST(HtmlReport, RepeatedSweepsAreATile) {
  static constexpr std::string_view tile = "<p class=\"label\">sweeps</p><p class=\"figure\">3</p>";
  Summary summary = handMadeSummary();
  EXPECT_EQ(count(toHtml(summary, {}), tile), 0u);
  summary.repeatedSweeps = {test::handMadeSweeps()};
  EXPECT_EQ(count(toHtml(summary, {}), tile), 1u);
}

TEST(HtmlReport, FillsEverySlot) {
  const std::string page = toHtml(handMadeSummary(), twoPoints());
  const std::string beforeScript = page.substr(0, page.find("<script>"));
  EXPECT_EQ(count(beforeScript, "{{"), 0u);
  EXPECT_NE(page.find("<p class=\"verdict\">4.00 of 6.00 MiB; 1.10 × in-memory; limited by link up</p>"),
            std::string::npos);
}

TEST(HtmlReport, WithoutASweepHasNoCurve) {
  EXPECT_EQ(count(toHtml(handMadeSummary(), {}), "<svg"), 0u + count(toHtml(handMadeSummary(), {}), "`<svg"));
  SweepPoint refused;
  EXPECT_EQ(toHtml(handMadeSummary(), {refused}), toHtml(handMadeSummary(), {}));
  EXPECT_NE(toHtml(handMadeSummary(), twoPoints()), toHtml(handMadeSummary(), {}));
}

TEST(HtmlReport, TheDataHoldsWhatIsDrawn) {
  const json data = dataOf(toHtml(handMadeSummary(), {}));
  EXPECT_EQ(data["totalUs"], 440.0);
  EXPECT_EQ(data["compute"]["start"], json::array({0.0, 100.0, 200.0, 340.0}));
  EXPECT_EQ(data["compute"]["again"], json::array({0, 0, 0, 0}));
  EXPECT_EQ(data["transfers"]["up"], json::array({0, 1}));
  EXPECT_EQ(data["stalls"]["transfer"], json::array({1})); // the second transfer
  EXPECT_EQ(data["stalls"]["node"], json::array({3}));
  EXPECT_EQ(data["before"][1], json::array({2 * mebi, 4 * mebi, 6 * mebi, 2 * mebi, 0}));
}

TEST(HtmlReport, NamesCannotBreakThePage) {
  Summary summary = handMadeSummary();
  const std::string evil = "</script><b>\"&";
  summary.captured.name = summary.lowered.buffers[0].name = summary.lowered.nodes[5].name = evil;
  const std::string page = toHtml(summary, twoPoints());
  EXPECT_EQ(page.find(evil), std::string::npos);
  EXPECT_EQ(count(page, "</script>"), 2u);
  EXPECT_EQ(dataOf(page)["buffers"][0][0], evil);
  EXPECT_NE(page.find("&lt;/script&gt;&lt;b&gt;&quot;&amp;"), std::string::npos);
}

TEST(HtmlReport, ARefusedPlanIsLoud) {
  Summary summary = handMadeSummary();
  summary.violations.push_back({std::nullopt, std::nullopt, "page 0 of <a> is not current"});
  const std::string page = toHtml(summary, {});
  EXPECT_NE(page.find("it must not be replayed<br>page 0 of &lt;a&gt; is not current"), std::string::npos);
  EXPECT_EQ(page.find("checked: correct"), std::string::npos);
}

TEST(Svg, StandsAlone) {
  const std::string svg = toSvg(handMadeSummary(), twoPoints());
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_EQ(count(svg, "<style>"), 1u);
  EXPECT_EQ(count(svg, "class=\"point\""), 2u);
  EXPECT_EQ(count(svg, "class=\"own\""), 1u);
  EXPECT_EQ(count(svg, "nan"), 0u);
}

TEST(Svg, BudgetsWithoutAPlanAreMarked) {
  std::vector<SweepPoint> points = twoPoints();
  SweepPoint refused;
  refused.budgetBytes = 3 * mebi;
  refused.reason = "node 2 \"write_c\" needs more";
  points.insert(points.begin(), refused);
  const std::string svg = toSvg(handMadeSummary(), points);
  EXPECT_EQ(count(svg, "class=\"point\""), 2u);
  EXPECT_EQ(count(svg, "no plan: node 2 &quot;write_c&quot; needs more"), 1u);
}

// A step that needs as much as its smallest budget has one point; the axes still have a length.
TEST(Svg, OnePointIsEnough) {
  const std::vector<SweepPoint> one{twoPoints()[1]};
  const std::string svg = toSvg(handMadeSummary(), one);
  EXPECT_EQ(count(svg, "nan"), 0u);
  EXPECT_EQ(count(svg, "inf"), 0u);
}

} // namespace pumpgraph
