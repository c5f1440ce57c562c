// SPDX-License-Identifier: Apache-2.0
// The pipeline behind every report: costs, plan, check, lower, check, predict, bound.
#include "passes/report/Summary.h"

#include "passes/analysis/EstimateCosts.h"
#include "passes/analysis/HostedAccess.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/HostedPages.h"
#include "passes/plan/Processors.h"
#include "passes/rematerialize/FirstTouches.h"
#include "passes/report/ManagedPlans.h"
#include "passes/report/RematerializingPlans.h"
#include "pumpgraph/graph/Ranges.h"
#include "pumpgraph/graph/Reliance.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <set>
#include <tuple>
#include <utility>

namespace pumpgraph {

static std::uint64_t pageOf(std::uint64_t offset, const Description &description) {
  return offset / description.pageBytes;
}

static void append(std::vector<Violation> &to, std::vector<Violation> from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

/// Lowers the plan and checks what comes out.
static void lower(Summary &summary, Backend backend, Prefetching prefetching) {
  if (backend == Backend::Virtual) {
    summary.lowered = lowerVirtual(summary.planned);
    append(summary.violations, checkResidency(summary.lowered));
    summary.prediction = predict(summary.lowered, summary.machine);
    summary.required = requiredTraffic(summary.lowered);
    return;
  }
  const ManagedOptions options{
      .machine = summary.machine, .prefetching = prefetching, .mayDiscard = backend == Backend::Managed};
  summary.lowered = lowerManaged(summary.captured, summary.planned, options);
  append(summary.violations, checkManaged(summary.lowered));
  summary.prediction = predictManaged(summary.lowered, summary.machine);
  summary.required = {summary.prediction.upBytes, summary.prediction.downBytes}; // nothing else is known of it
}

static bool mayRepeat(const Description &captured, const PlanOptions &options) {
  return options.rematerializes && options.backend == Backend::Virtual &&
         std::any_of(captured.nodes.begin(), captured.nodes.end(), [](const Node &node) { return node.isPure; });
}

/// The bounds of a step, found beside its planning where there is a processor for that.
class Bounds {
public:
  Bounds(const Description &captured, const PlanOptions &options)
      : captured_(captured), hosted_(options.hosted), machine_(options.machine), backend_(options.backend),
        budgetBytes_(options.budgetBytes),
        repetitions_(mayRepeat(captured, options) ? Repetitions::Allowed : Repetitions::None) {
    if (budgetBytes_ == 0)
      return; // as much as the step turns out to need
    const std::launch when = options.processors == 1 ? std::launch::deferred : std::launch::async;
    must_ = std::async(when, [this] { return ofBudget(budgetBytes_, BoundKind::Must, Backend::Virtual); });
    may_ = std::async(when, [this] { return ofBudget(budgetBytes_, BoundKind::May, backend_); });
  }
  Bounds(const Bounds &) = delete;
  Bounds &operator=(const Bounds &) = delete;

  Bound must(const Description &planned) {
    return budgetBytes_ == planned.budgetBytes ? must_.get()
                                               : ofBudget(planned.budgetBytes, BoundKind::Must, Backend::Virtual);
  }
  /// Of plans that host the same as `planned`, and of those that host no more than they must.
  std::pair<Bound, Bound> may(const Description &planned) {
    const bool hostsNothing = hostedBytes(planned) == 0 && hostedBytes(captured_) == 0;
    if (backend_ == Backend::Virtual || hostsNothing) {
      // What is hosted counts, and nobody knew of it before.
      const Bound one = budgetBytes_ == planned.budgetBytes && hostsNothing
                            ? may_.get()
                            : planBoundOf(captured_, planned, machine_, backend_, repetitions_);
      return {one, one};
    }
    Description least = captured_;
    for (const BufferPart &part : hosted_)
      append(least.buffers[part.buffer].hosted, part.range);
    return {planBoundOf(captured_, planned, machine_, backend_),
            bound(captured_, planned.budgetBytes, machine_, BoundKind::May, backend_,
                  leastHostedBytes(std::move(least), planned.budgetBytes))};
  }

private:
  Bound ofBudget(std::uint64_t budgetBytes, BoundKind kind, Backend backend) const {
    return bound(captured_, budgetBytes, machine_, kind, backend, std::nullopt, repetitions_);
  }

  const Description captured_; // its own: what nobody asks for in the end may still be on its way
  const std::vector<BufferPart> hosted_;
  const Machine machine_;
  const Backend backend_;
  const std::uint64_t budgetBytes_;
  const Repetitions repetitions_;
  std::future<Bound> must_, may_;
};

static tl::expected<PlannedStep, PlanError> plan(const Description &captured, const PlanOptions &options) {
  if (options.backend != Backend::Virtual)
    return planForManaged(captured, options);
  return mayRepeat(captured, options) ? planRematerializing(captured, options) : planResidency(captured, options);
}

tl::expected<Summary, PlanError> summarize(const Description &captured, const PlanOptions &options,
                                           Prefetching prefetching) {
  std::string error = validate(captured);
  if (error.empty())
    error = wrongStage(captured, {Stage::Captured});
  if (!error.empty())
    return tl::unexpected(PlanError{std::nullopt, fmt::format("step \"{}\": {}", captured.name, error)});

  Summary summary;
  summary.captured = captured;
  summary.machine = options.machine;
  summary.fewNodes = findFewNodes(captured);
  estimateCosts(summary.captured, options.machine);
  if (mayRepeat(captured, options)) {
    claimFirstTouches(summary.captured);
    summary.remakeable = findRemakeable(summary.captured);
  }

  Bounds bounds(summary.captured, options);
  const auto start = std::chrono::steady_clock::now();
  tl::expected<PlannedStep, PlanError> step = plan(summary.captured, options);
  if (!step)
    return tl::unexpected(std::move(step.error()));
  summary.planned = std::move(step->description);
  summary.stats = step->stats;
  append(summary.violations, checkResidency(summary.planned));
  lower(summary, options.backend, prefetching);
  append(summary.violations, checkPreserves(summary.captured, summary.lowered));
  if (options.boundary)
    append(summary.violations, checkKeepsBoundary(*options.boundary, summary.lowered));
  summary.checked = summary.violations.empty();
  summary.planMs = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();

  summary.inMemory = predict(summary.captured, options.machine);
  summary.repeatedSweeps = findRepeatedSweeps(summary.lowered);
  if (summary.remakeable)
    summary.ways = findWays(*summary.remakeable, summary.lowered);
  summary.bound = bounds.must(summary.lowered);
  std::tie(summary.planBound, summary.movingBound) = bounds.may(summary.lowered);
  summary.hosted = hostedTraffic(summary.lowered);
  return summary;
}

Summary retimed(const Description &captured, const Description &lowered, PlanOptions options,
                std::uint64_t peakBytesBefore) {
  Summary summary;
  summary.captured = captured;
  summary.lowered = lowered;
  summary.machine = options.machine;
  summary.fewNodes = findFewNodes(captured);
  estimateCosts(summary.captured, options.machine);
  if (mayRepeat(captured, options))
    claimFirstTouches(summary.captured);
  options.budgetBytes = lowered.budgetBytes;
  Bounds bounds(summary.captured, options);
  summary.stats.peakPagesBefore = peakBytesBefore / captured.pageBytes;
  summary.inMemory = predict(summary.captured, options.machine);
  summary.prediction = predict(summary.lowered, options.machine);
  summary.hosted = hostedTraffic(summary.lowered);
  summary.bound = bounds.must(summary.lowered);
  std::tie(summary.planBound, summary.movingBound) = bounds.may(summary.lowered);
  return summary;
}

Bound planBoundOf(const Description &captured, const Description &planned, const Machine &machine, Backend backend,
                  Repetitions repetitions) {
  Description step = captured;
  for (BufferIndex buffer = 0; buffer < step.buffers.size(); ++buffer)
    step.buffers[buffer].hosted = planned.buffers[buffer].hosted;
  return bound(step, planned.budgetBytes, machine, BoundKind::May, backend, std::nullopt, repetitions);
}

std::uint64_t Summary::continuedBytes() const {
  std::uint64_t bytes = 0;
  for (BufferIndex index = 0; index < lowered.buffers.size(); ++index) {
    const Buffer &buffer = lowered.buffers[index];
    if (buffer.continues == noBuffer)
      continue;
    const Buffer &before = lowered.buffers[buffer.continues];
    for (std::uint64_t page = 0; page < lowered.pageCount(index); ++page) {
      const Range range{page * lowered.pageBytes, std::min(lowered.pageBytes, buffer.size - page * lowered.pageBytes)};
      const bool stays = buffer.frames[page] == before.frames[page] &&
                         overlaps(buffer.hosted, range) == overlaps(before.hosted, range);
      bytes += stays ? 0 : range.size;
    }
  }
  return bytes;
}

Summary::Repeated Summary::repeated() const {
  Repeated all;
  for (const Node &node : lowered.nodes) {
    if (node.kind != NodeKind::Rematerialize)
      continue;
    ++all.nodes;
    all.us += node.costUs;
    for (const Access &access : node.accesses)
      all.bytes += (reliableMay(access) & modeWrite) != 0 ? access.range.size : 0;
  }
  return all;
}

double Summary::hostedUs() const {
  double us = 0;
  for (const Traffic &traffic : hosted.loadByNode)
    us += linkUs(traffic, machine);
  return us;
}

double Summary::movedOverRequired() const {
  const std::uint64_t moved = prediction.upBytes + prediction.downBytes;
  if (moved == required.total())
    return 1;
  return static_cast<double>(moved) / static_cast<double>(required.total());
}

tl::expected<std::uint64_t, PlanError> peakBytes(const Description &captured, const Machine &machine) {
  PlanOptions options;
  options.machine = machine;
  const tl::expected<PlannedStep, PlanError> step = planResidency(captured, options);
  if (!step)
    return tl::unexpected(step.error());
  return step->stats.peakPagesBefore * captured.pageBytes;
}

std::uint64_t smallestBudget(const Description &captured) {
  std::uint64_t exclusivePages = 0, presentPages = 0;
  for (BufferIndex buffer = 0; buffer < captured.buffers.size(); ++buffer)
    if (!captured.buffers[buffer].isPrivate)
      exclusivePages += captured.pageCount(buffer);
    else if (captured.buffers[buffer].isPresent)
      presentPages += captured.pageCount(buffer);

  std::uint64_t largestSet = presentPages; // which are all there between replays
  for (const Node &node : captured.nodes) {
    std::set<std::pair<BufferIndex, std::uint64_t>> pages;
    for (const Access &access : node.accesses) {
      if (!captured.buffers[access.buffer].isPrivate || access.range.size == 0)
        continue;
      const std::uint64_t last = pageOf(access.range.end() - 1, captured);
      for (std::uint64_t page = pageOf(access.range.offset, captured); page <= last; ++page)
        pages.emplace(access.buffer, page);
    }
    largestSet = std::max<std::uint64_t>(largestSet, pages.size());
  }
  return (exclusivePages + largestSet) * captured.pageBytes;
}

static SweepPoint planPoint(const Description &captured, const PlanOptions &options) {
  SweepPoint point;
  point.budgetBytes = options.budgetBytes;
  const tl::expected<Summary, PlanError> summary = summarize(captured, options);
  if (!summary) {
    point.reason = summary.error().message;
    return point;
  }
  if (!summary->checked) {
    point.reason = "the checker refused the plan: " + summary->violations.front().message;
    return point;
  }
  point.plannable = true;
  point.predictedUs = summary->prediction.totalUs;
  point.boundUs = summary->bound.totalUs;
  point.planBoundUs = summary->planBound.totalUs;
  point.movesUs = summary->stats.movesUs;
  point.upBytes = summary->prediction.upBytes;
  point.downBytes = summary->prediction.downBytes;
  point.peakBytes = summary->prediction.peakBytes;
  return point;
}

std::vector<SweepPoint> sweep(const Description &captured, const PlanOptions &options, int points) {
  const tl::expected<std::uint64_t, PlanError> peak = peakBytes(captured, options.machine);
  if (!peak || points < 1)
    return {};

  const std::uint64_t largest = *peak;
  const std::uint64_t smallest = std::min(smallestBudget(captured), largest);
  const std::uint64_t pages = (largest - smallest) / captured.pageBytes;
  // No budget twice: there are no more of them than pages between the two.
  const std::uint64_t steps = std::min(static_cast<std::uint64_t>(points - 1), pages);
  std::vector<SweepPoint> result(steps + 1);
  // Points are independent of each other; each lands in its own place, so the order of work does not show.
  const unsigned processors = processorsOf(options.processors);
  const unsigned wanted = static_cast<unsigned>(std::min<std::size_t>(processors, result.size()));
  sideBySide(result.size(), wanted, [&](std::size_t i) {
    PlanOptions pointOptions = options;
    pointOptions.budgetBytes = steps == 0 ? largest : smallest + pages * i / steps * captured.pageBytes;
    pointOptions.processors = processors / wanted;
    result[i] = planPoint(captured, pointOptions);
  });
  return result;
}

void findEnough(Summary &summary) {
  static constexpr int bisections = 6;
  if (runsAtInMemorySpeed(summary))
    return;
  const auto suffices = [&](std::uint64_t budgetBytes) {
    PlanOptions options{budgetBytes, summary.machine};
    options.isQuick = true;
    const tl::expected<PlannedStep, PlanError> step = planResidency(summary.captured, options);
    return step && predict(lowerVirtual(step->description), summary.machine).totalUs <=
                       summary.inMemory.totalUs * inMemoryTolerance;
  };
  const std::uint64_t pageBytes = summary.captured.pageBytes;
  std::uint64_t tooFew = summary.budgetBytes() / pageBytes;
  std::uint64_t enough = summary.stats.peakPagesBefore; // by definition: nothing is moved then
  for (int i = 0; i < bisections && tooFew + 1 < enough; ++i) {
    const std::uint64_t middle = tooFew + (enough - tooFew) / 2;
    (suffices(middle * pageBytes) ? enough : tooFew) = middle;
  }
  summary.enoughBytes = enough * pageBytes;
}

void findEnough(Summary &summary, const std::vector<SweepPoint> &points) {
  if (runsAtInMemorySpeed(summary))
    return;
  const auto enough = std::find_if(points.begin(), points.end(), [&](const SweepPoint &point) {
    return point.plannable && point.budgetBytes > summary.budgetBytes() &&
           point.predictedUs <= summary.inMemory.totalUs * inMemoryTolerance;
  });
  if (enough != points.end())
    summary.enoughBytes = enough->budgetBytes;
}

} // namespace pumpgraph
