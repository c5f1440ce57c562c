// SPDX-License-Identifier: Apache-2.0
#include "passes/report/CurveSvg.h"

#include "passes/report/Units.h"
#include "pumpgraph/graph/Printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <iterator>

namespace pumpgraph {

namespace {

/// An axis from `low` to `high` in units of which one is `unit` raw units.
struct Axis {
  double low = 0;
  double high = 1;
  double unit = 1;
  double tick = 1; ///< in units
  const char *unitName = "";
};

struct Unit {
  double size;
  const char *name;
};

} // namespace

static constexpr std::array byteUnits{Unit{1024, "KiB"}, Unit{1024.0 * 1024, "MiB"}, Unit{1024.0 * 1024 * 1024, "GiB"},
                                      Unit{1024.0 * 1024 * 1024 * 1024, "TiB"}};
static constexpr std::array timeUnits{Unit{1, "µs"}, Unit{1e3, "ms"}, Unit{1e6, "s"}};

/// 1, 2 or 5 times a power of ten, so that about `wanted` steps cover the span.
static double niceStep(double span, int wanted) {
  const double raw = span / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power)
      return factor * power;
  return 10 * power;
}

template <std::size_t count>
static Axis makeAxis(double low, double high, const std::array<Unit, count> &units, int ticks) {
  // The largest unit of which at least two fit.
  Unit unit = units.front();
  for (const Unit &candidate : units)
    if (high >= 2 * candidate.size)
      unit = candidate;
  return {low, high, unit.size, niceStep((high - low) / unit.size, ticks), unit.name};
}

std::string escapeMarkup(std::string_view text) {
  std::string escaped;
  for (const char c : printable(text)) { // XML has no control characters at all
    switch (c) {
    case '&':
      escaped += "&amp;";
      break;
    case '<':
      escaped += "&lt;";
      break;
    case '>':
      escaped += "&gt;";
      break;
    case '"':
      escaped += "&quot;";
      break;
    default:
      escaped += c;
    }
  }
  return escaped;
}

namespace {

/// Draws one curve; every method adds one layer, from the back to the front.
class Curve {
public:
  Curve(const Summary &summary, const std::vector<SweepPoint> &points, const CurveOptions &options)
      : summary_(summary), points_(points), options_(options) {
    assert(std::any_of(points.begin(), points.end(), [](const SweepPoint &p) { return p.plannable; }) &&
           "a curve needs a plannable point");
    narrow_ = options.width < 600;
    left_ = narrow_ ? 56 : 72;
    right_ = options.width - (narrow_ ? 16 : 28);
    top_ = (narrow_ ? 68 : 42) + (options.standalone ? 36 : 0);
    bottom_ = options.height - 56;
    chooseAxes();
  }

  std::string draw() {
    open();
    addGrid();
    addImpossible();
    addForbiddenArea();
    addInMemoryLine();
    addLine("bound", [](const SweepPoint &point) { return point.boundUs; });
    addLine("plan-bound", [](const SweepPoint &point) { return point.planBoundUs; });
    if (repeats())
      addLine("moves", movesUs);
    addLine("predicted", [](const SweepPoint &point) { return point.predictedUs; });
    addPoints();
    addOwnBudget();
    addLegend();
    add("</svg>\n");
    return fmt::to_string(out_);
  }

private:
  template <typename... Arguments> void add(fmt::format_string<Arguments...> format, Arguments &&...arguments) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Arguments>(arguments)...);
  }

  /// By a plan that repeats nothing.
  static double movesUs(const SweepPoint &point) { return point.movesUs > 0 ? point.movesUs : point.predictedUs; }
  bool repeats() const {
    return std::ranges::any_of(points_, [](const SweepPoint &point) { return point.movesUs > 0; });
  }

  double x(double bytes) const { return left_ + (bytes - x_.low) / (x_.high - x_.low) * (right_ - left_); }
  double y(double microseconds) const {
    return bottom_ - (microseconds - y_.low) / (y_.high - y_.low) * (bottom_ - top_);
  }

  void chooseAxes() {
    const double peak = static_cast<double>(summary_.peakBytesBefore());
    double smallest = peak;
    double largest = std::max(peak, static_cast<double>(summary_.budgetBytes()));
    double slowest = std::max(summary_.inMemory.totalUs, 1e-3);
    for (const SweepPoint &point : points_) {
      smallest = std::min(smallest, static_cast<double>(point.budgetBytes));
      largest = std::max(largest, static_cast<double>(point.budgetBytes));
      if (point.plannable)
        slowest = std::max({slowest, point.predictedUs, point.planBoundUs, point.movesUs});
    }
    // From zero, so that half the memory is half the axis, unless that would squeeze the curve into a corner.
    const double low = smallest < 0.6 * largest ? 0 : smallest - 0.15 * (largest - smallest);
    x_ = makeAxis(low, std::max(largest * 1.02, low + 1), byteUnits, narrow_ ? 4 : 8);
    y_ = makeAxis(0, slowest * 1.08, timeUnits, 5);
  }

  void open() {
    add(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}"{2} role="img" class="curve{3}" )"
        R"(aria-label="{4}: step time against device memory budget. {5}">)"
        "\n",
        options_.width, options_.height,
        options_.standalone ? fmt::format(R"( width="{}" height="{}")", options_.width, options_.height) : "",
        narrow_ ? " narrow" : " wide", escapeMarkup(summary_.captured.name), escapeMarkup(verdict(summary_)));
    if (options_.standalone)
      add("{}", style());
    add(R"(<defs><pattern id="hatch{}" width="6" height="6" patternUnits="userSpaceOnUse" )"
        R"svg(patternTransform="rotate(45)"><line class="hatch" y2="6"/></pattern></defs>)svg"
        "\n",
        narrow_ ? "-narrow" : "");
    if (!options_.standalone)
      return;
    add(R"(<rect class="surface" width="{}" height="{}" rx="10"/>)"
        "\n",
        options_.width, options_.height);
    const std::string name = shorten(summary_.captured.name, narrow_ ? 24 : 60);
    add(R"(<text class="title" x="{}" y="30">{}: step time against device memory</text>)"
        "\n",
        narrow_ ? 16 : 28, escapeMarkup(name));
  }

  static const char *style() {
    return R"(<style>
svg{--surface:#fff;--ink:#1b2028;--muted:#5a6472;--grid:#e4e8ed;--accent:#1f5fd0;--teal:#0b8578;--bound:#8b95a3;--shade:#8b95a3}
@media(prefers-color-scheme:dark){svg{--surface:#12161c;--ink:#e8ebf0;--muted:#9aa5b4;--grid:#2a313b;--accent:#72a9ff;--teal:#45cdbb;--bound:#788494;--shade:#788494}}
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:var(--muted)}
.title{font-size:16px;font-weight:600;fill:var(--ink)}
.surface{fill:var(--surface);stroke:var(--grid)}
.grid{stroke:var(--grid)}
.hatch{stroke:var(--shade);stroke-width:1.5;opacity:.45}
.forbidden{fill:var(--shade);opacity:.13}
.in-memory{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:2 4;fill:none;stroke-linecap:round}
.bound{stroke:var(--bound);stroke-width:1.5;fill:none}
.plan-bound{stroke:var(--teal);stroke-width:2;stroke-dasharray:7 4;fill:none}
.moves{stroke:var(--accent);stroke-width:1.5;stroke-dasharray:1 4;stroke-linecap:round;fill:none}
.predicted{stroke:var(--accent);stroke-width:3;fill:none;stroke-linejoin:round}
.point{fill:var(--accent);stroke:var(--surface);stroke-width:1.5}
.own{fill:var(--surface);stroke:var(--accent);stroke-width:3}
.drop{stroke:var(--accent);stroke-dasharray:3 3}
.own-label{fill:var(--ink);font-weight:600;paint-order:stroke;stroke:var(--surface);stroke-width:4px;stroke-linejoin:round}
</style>
)";
  }

  void addGrid() {
    const double firstX = std::max(0.0, std::ceil(x_.low / x_.unit / x_.tick - 1e-9)) * x_.tick;
    // NOLINTNEXTLINE(bugprone-float-loop-counter): ticks are few
    for (double tick = firstX; tick * x_.unit <= x_.high; tick += x_.tick) {
      const double position = x(tick * x_.unit);
      add(R"(<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>)", position, top_, bottom_);
      add(R"(<text x="{:.1f}" y="{}" text-anchor="middle">{:g}</text>)"
          "\n",
          position, bottom_ + 19, tick);
    }
    // NOLINTNEXTLINE(bugprone-float-loop-counter)
    for (double tick = 0; tick * y_.unit <= y_.high; tick += y_.tick) {
      const double position = y(tick * y_.unit);
      add(R"(<line class="grid" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>)", left_, right_, position);
      add(R"(<text x="{}" y="{:.1f}" text-anchor="end">{:g}</text>)"
          "\n",
          left_ - 8, position + 4, tick);
    }
    add(R"(<text x="{:.1f}" y="{}" text-anchor="middle">device memory budget, {}</text>)"
        "\n",
        (left_ + right_) / 2.0, bottom_ + 42, x_.unitName);
    add(R"(<text x="{}" y="{}" text-anchor="start">step time, {}</text>)"
        "\n",
        narrow_ ? 16 : 28, top_ - 12, y_.unitName);
  }

  /// Budgets that no plan was found for: left of the first plannable point.
  void addImpossible() {
    double first = x_.high;
    const SweepPoint *refused = nullptr;
    for (const SweepPoint &point : points_) {
      if (point.plannable)
        first = std::min(first, static_cast<double>(point.budgetBytes));
      else
        refused = &point;
    }
    const double width = x(first) - left_;
    if (width < 2)
      return;
    const std::string reason = refused ? refused->reason : "one node alone touches more than that";
    add(R"svg(<rect x="{}" y="{}" width="{:.1f}" height="{}" fill="url(#hatch{})"><title>no plan: {}</title></rect>)svg"
        "\n",
        left_, top_, width, bottom_ - top_, narrow_ ? "-narrow" : "", escapeMarkup(reason));
    const double textWidth = 170;
    if (width > textWidth)
      add(R"(<text class="own-label" style="font-weight:400" x="{:.1f}" y="{}" text-anchor="middle">)"
          R"(below {}: no plan</text>)"
          "\n",
          left_ + width / 2, top_ + 20, formatBytes(static_cast<std::uint64_t>(first)));
  }

  std::string path(double (*time)(const SweepPoint &)) const {
    std::string commands;
    bool joined = false;
    for (const SweepPoint &point : points_) {
      if (point.plannable)
        commands += fmt::format("{}{:.1f} {:.1f}", joined ? "L" : "M", x(static_cast<double>(point.budgetBytes)),
                                y(time(point)));
      joined = point.plannable;
    }
    return commands;
  }

  /// Below the bound no plan whatever can be.
  void addForbiddenArea() {
    std::string outline;
    double firstX = 0;
    double lastX = 0;
    for (const SweepPoint &point : points_) {
      if (!point.plannable)
        continue;
      lastX = x(static_cast<double>(point.budgetBytes));
      if (outline.empty())
        firstX = lastX;
      outline += fmt::format("{}{:.1f} {:.1f}", outline.empty() ? "M" : "L", lastX, y(point.boundUs));
    }
    add(R"(<path class="forbidden" d="{}L{:.1f} {}L{:.1f} {}Z"/>)"
        "\n",
        outline, lastX, bottom_, firstX, bottom_);
  }

  void addInMemoryLine() {
    add(R"(<line class="in-memory" x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/>)"
        "\n",
        left_, right_, y(summary_.inMemory.totalUs));
  }

  void addLine(const char *style, double (*time)(const SweepPoint &)) {
    add(R"(<path class="{}" d="{}"/>)"
        "\n",
        style, path(time));
  }

  void addPoints() {
    for (const SweepPoint &point : points_) {
      if (!point.plannable)
        continue;
      add(R"(<circle class="point" cx="{:.1f}" cy="{:.1f}" r="{}"><title>{} budget: {} predicted ({} in-memory), )"
          R"(plan bound {}, bound {}; {} up, {} down</title></circle>)"
          "\n",
          x(static_cast<double>(point.budgetBytes)), y(point.predictedUs), points_.size() > 40 ? 2.5 : 4,
          formatBytes(point.budgetBytes), formatMicroseconds(point.predictedUs),
          formatRatio(point.predictedUs, summary_.inMemory.totalUs), formatMicroseconds(point.planBoundUs),
          formatMicroseconds(point.boundUs), formatBytes(point.upBytes), formatBytes(point.downBytes));
    }
  }

  void addOwnBudget() {
    const double centreX = x(static_cast<double>(summary_.budgetBytes()));
    const double centreY = y(summary_.prediction.totalUs);
    if (centreX < left_ || centreX > right_ + 1)
      return;
    add(R"(<line class="drop" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2}"/>)", centreX, centreY, bottom_);
    add(R"(<circle class="own" cx="{:.1f}" cy="{:.1f}" r="6"><title>this plan: {}</title></circle>)"
        "\n",
        centreX, centreY, escapeMarkup(verdict(summary_)));
    // The curve falls to the right, so there is room on that side, unless the edge is near.
    const bool toTheLeft = centreX + (narrow_ ? 120 : 200) > right_;
    const double ratio = summary_.inMemory.totalUs > 0 ? summary_.prediction.totalUs / summary_.inMemory.totalUs : 0;
    add(R"(<text class="own-label" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}: {:.2f} ×{}</text>)"
        "\n",
        centreX + (toTheLeft ? 4 : 8), centreY - 14, toTheLeft ? "end" : "start", formatBytes(summary_.budgetBytes()),
        ratio, narrow_ ? "" : " in-memory");
  }

  void addLegend() {
    struct Entry {
      const char *style;
      const char *label;
      int width;
    };
    std::vector<Entry> entries{{"predicted", "PumpGraph, predicted", 196}};
    if (repeats())
      entries.push_back({"moves", "moves alone", 122});
    entries.insert(entries.end(), {{"plan-bound", "plan bound", 118},
                                   {"bound", "bound (no plan is faster)", 220},
                                   {"in-memory", "in memory", 105}});
    const int firstX = narrow_ ? 16 : left_ + 110;
    int position = firstX;
    int line = narrow_ ? top_ - 54 : top_ - 16;
    for (const Entry &entry : entries) {
      if (position + entry.width > options_.width - 8) {
        position = firstX;
        line += 20;
      }
      add(R"(<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/>)", entry.style, position, position + 24, line, line);
      add(R"(<text x="{}" y="{}">{}</text>)"
          "\n",
          position + 31, line + 4, entry.label);
      position += entry.width;
    }
  }

  const Summary &summary_;
  const std::vector<SweepPoint> &points_;
  const CurveOptions &options_;
  fmt::memory_buffer out_;
  bool narrow_ = false;
  int left_ = 0, right_ = 0, top_ = 0, bottom_ = 0;
  Axis x_, y_;
};

} // namespace

std::string curveSvg(const Summary &summary, const std::vector<SweepPoint> &points, const CurveOptions &options) {
  return Curve(summary, points, options).draw();
}

std::string toSvg(const Summary &summary, const std::vector<SweepPoint> &points) {
  return curveSvg(summary, points, CurveOptions{});
}

} // namespace pumpgraph
