// SPDX-License-Identifier: Apache-2.0
// A step as it stands in the IR.
#include "passes/pipeline/Compile.h"

#include "passes/analysis/EstimateCosts.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/pipeline/Budgets.h"
#include "passes/pipeline/PlanBounds.h"

#include <algorithm>
#include <utility>

namespace pumpgraph {

tl::expected<Compiled, PlanError> compileSoFar(const Description &description, const Machine &machine) {
  if (description.stage == Stage::Captured)
    return compile(description, {.plan = {.machine = machine}});
  if (std::string fault = wrongStage(description, {Stage::Captured, Stage::Planned, Stage::LoweredVirtual});
      !fault.empty())
    return tl::unexpected(PlanError{std::nullopt, std::move(fault)});

  Compiled step;
  step.machine = machine;
  step.fewNodes = findFewNodes(description);
  step.planned = description;
  estimateCosts(step.planned, machine);
  step.captured = withoutPlan(step.planned);
  step.lowered = description.stage == Stage::LoweredVirtual ? step.planned : lowerVirtual(step.planned);
  step.violations = checkResidency(step.lowered);
  step.inMemory = predict(step.captured, machine);
  step.prediction = predict(step.lowered, machine);
  const bool repeats =
      std::ranges::any_of(step.lowered.nodes, [](const Node &node) { return node.kind == NodeKind::Rematerialize; });
  const Repetitions repetitions = repeats ? Repetitions::Allowed : Repetitions::None;
  step.bound =
      bound(step.captured, step.budgetBytes(), machine, BoundKind::Must, Backend::Virtual, std::nullopt, repetitions);
  step.planBound = planBoundOf(step.captured, step.lowered, machine, Backend::Virtual, repetitions);
  step.stats = statsOf(step.planned);
  const tl::expected<std::uint64_t, PlanError> peak = peakBytes(step.captured, machine);
  if (!peak)
    return tl::unexpected(peak.error());
  step.stats.peakPagesBefore = *peak / step.captured.pageBytes;
  return step;
}

} // namespace pumpgraph
