// SPDX-License-Identifier: Apache-2.0
#include "passes/ir/SummaryOf.h"

#include "passes/analysis/EstimateCosts.h"
#include "passes/lower/LowerManaged.h"
#include "passes/lower/LowerVirtual.h"

#include <algorithm>

namespace pumpgraph::ir {

tl::expected<Summary, PlanError> summaryOf(const Description &description, const Machine &machine) {
  PlanOptions inMemory;
  inMemory.machine = machine;
  if (description.stage == Stage::Captured)
    return summarize(description, inMemory);
  if (std::string fault = wrongStage(description, {Stage::Captured, Stage::Planned, Stage::LoweredVirtual});
      !fault.empty())
    return tl::unexpected(PlanError{std::nullopt, std::move(fault)});

  Summary summary;
  summary.machine = machine;
  summary.planned = description;
  summary.fewNodes = findFewNodes(description);
  estimateCosts(summary.planned, machine);
  summary.captured = withoutPlan(summary.planned);
  summary.lowered = description.stage == Stage::LoweredVirtual ? summary.planned : lowerVirtual(summary.planned);
  summary.violations = checkResidency(summary.lowered);
  summary.checked = summary.violations.empty();
  summary.inMemory = predict(summary.captured, machine);
  summary.prediction = predict(summary.lowered, machine);
  summary.required = requiredTraffic(summary.lowered);
  const bool repeats =
      std::ranges::any_of(summary.lowered.nodes, [](const Node &node) { return node.kind == NodeKind::Rematerialize; });
  const Repetitions repetitions = repeats ? Repetitions::Allowed : Repetitions::None;
  summary.bound = bound(summary.captured, summary.budgetBytes(), machine, BoundKind::Must, Backend::Virtual,
                        std::nullopt, repetitions);
  summary.planBound = planBoundOf(summary.captured, summary.lowered, machine, Backend::Virtual, repetitions);
  summary.hosted = hostedTraffic(summary.lowered);
  summary.repeatedSweeps = findRepeatedSweeps(summary.lowered);
  summary.stats = statsOf(summary.planned);
  const tl::expected<std::uint64_t, PlanError> peak = peakBytes(summary.captured, machine);
  if (!peak)
    return tl::unexpected(peak.error());
  summary.stats.peakPagesBefore = *peak / summary.captured.pageBytes;
  return summary;
}

} // namespace pumpgraph::ir
