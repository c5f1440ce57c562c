// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline/Budgets.h"

#include "passes/lower/LowerVirtual.h"
#include "passes/plan/Workers.h"

#include <algorithm>
#include <set>
#include <utility>

namespace pumpgraph {

static std::uint64_t pageOf(std::uint64_t offset, const Description &description) {
  return offset / description.pageBytes;
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

static SweepPoint planPoint(const Description &captured, const CompileOptions &options) {
  SweepPoint point;
  point.budgetBytes = options.plan.budgetBytes;
  const tl::expected<Compiled, PlanError> step = compile(captured, options);
  if (!step) {
    point.reason = step.error().message;
    return point;
  }
  if (!step->checked()) {
    point.reason = "the checker refused the plan: " + step->violations.front().message;
    return point;
  }
  point.plannable = true;
  point.predictedUs = step->prediction.totalUs;
  point.boundUs = step->bound.totalUs;
  point.planBoundUs = step->planBound.totalUs;
  point.movesUs = step->stats.movesUs;
  point.upBytes = step->prediction.upBytes;
  point.downBytes = step->prediction.downBytes;
  point.peakBytes = step->prediction.peakBytes;
  return point;
}

std::vector<SweepPoint> sweep(const Description &captured, const CompileOptions &options, int points) {
  const tl::expected<std::uint64_t, PlanError> peak = peakBytes(captured, options.plan.machine);
  if (!peak || points < 1)
    return {};

  const std::uint64_t largest = *peak;
  const std::uint64_t smallest = std::min(smallestBudget(captured), largest);
  const std::uint64_t pages = (largest - smallest) / captured.pageBytes;
  // No budget twice: there are no more of them than pages between the two.
  const std::uint64_t steps = std::min(static_cast<std::uint64_t>(points - 1), pages);
  std::vector<SweepPoint> result(steps + 1);
  // Points are independent of each other; each lands in its own place, so the order of work does not show.
  Workers workers(options.plan.processors);
  const unsigned together = static_cast<unsigned>(std::min<std::size_t>(workers.processors(), result.size()));
  workers.forEach(result.size(), [&](std::size_t i) {
    CompileOptions pointOptions = options;
    pointOptions.plan.budgetBytes = steps == 0 ? largest : smallest + pages * i / steps * captured.pageBytes;
    pointOptions.plan.processors = workers.processors() / together;
    result[i] = planPoint(captured, pointOptions);
  });
  return result;
}

std::optional<std::uint64_t> findEnough(const Compiled &compiled) {
  static constexpr int bisections = 6;
  if (runsAtInMemorySpeed(compiled))
    return std::nullopt;
  const auto suffices = [&](std::uint64_t budgetBytes) {
    PlanOptions options{budgetBytes, compiled.machine};
    options.isQuick = true;
    const tl::expected<PlannedStep, PlanError> step = planResidency(compiled.captured, options);
    return step && predict(lowerVirtual(step->description), compiled.machine).totalUs <=
                       compiled.inMemory.totalUs * inMemoryTolerance;
  };
  const std::uint64_t pageBytes = compiled.captured.pageBytes;
  std::uint64_t tooFew = compiled.budgetBytes() / pageBytes;
  std::uint64_t enough = compiled.stats.peakPagesBefore; // by definition: nothing is moved then
  for (int i = 0; i < bisections && tooFew + 1 < enough; ++i) {
    const std::uint64_t middle = tooFew + (enough - tooFew) / 2;
    (suffices(middle * pageBytes) ? enough : tooFew) = middle;
  }
  return enough * pageBytes;
}

std::optional<std::uint64_t> findEnough(const Compiled &compiled, const std::vector<SweepPoint> &points) {
  if (runsAtInMemorySpeed(compiled))
    return std::nullopt;
  const auto enough = std::find_if(points.begin(), points.end(), [&](const SweepPoint &point) {
    return point.plannable && point.budgetBytes > compiled.budgetBytes() &&
           point.predictedUs <= compiled.inMemory.totalUs * inMemoryTolerance;
  });
  return enough == points.end() ? std::nullopt : std::optional(enough->budgetBytes);
}

} // namespace pumpgraph
