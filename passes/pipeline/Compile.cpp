// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline/Compile.h"

#include "passes/analysis/EstimateCosts.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/lower/PredictManaged.h"
#include "passes/pipeline/ManagedPlans.h"
#include "passes/pipeline/PlanBounds.h"
#include "passes/pipeline/RematerializingPlans.h"
#include "passes/rematerialize/FirstTouches.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <tuple>
#include <utility>

namespace pumpgraph {

namespace {

void append(std::vector<Violation> &to, std::vector<Violation> from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

bool mayRepeat(const Description &captured, const CompileOptions &options) {
  return options.rematerializes && options.plan.backend == Backend::Virtual &&
         std::any_of(captured.nodes.begin(), captured.nodes.end(), [](const Node &node) { return node.isPure; });
}

void analyse(Compiled &step, bool mayRepeat) {
  step.fewNodes = findFewNodes(step.captured);
  estimateCosts(step.captured, step.machine);
  if (mayRepeat) {
    claimFirstTouches(step.captured);
    step.remakeable = findRemakeable(step.captured);
  }
  step.inMemory = predict(step.captured, step.machine);
}

tl::expected<PlannedStep, PlanError> plan(const Compiled &step, const CompileOptions &options) {
  if (options.plan.backend != Backend::Virtual)
    return planForManaged(step.captured, options.plan, options.managed);
  return step.remakeable ? planRematerializing(step.captured, options.plan)
                         : planResidency(step.captured, options.plan);
}

/// Lowers the plan and checks the result.
void lower(Compiled &step, const CompileOptions &options) {
  if (options.plan.backend == Backend::Virtual) {
    step.lowered = lowerVirtual(step.planned);
    append(step.violations, checkResidency(step.lowered));
    return;
  }
  step.lowered = lowerManaged(step.captured, step.planned,
                              {.machine = step.machine,
                               .prefetching = options.managed.prefetching,
                               .mayDiscard = options.plan.backend == Backend::Managed});
  append(step.violations, checkManaged(step.lowered));
}

} // namespace

tl::expected<Compiled, PlanError> compile(const Description &captured, const CompileOptions &options) {
  std::string error = validate(captured);
  if (error.empty())
    error = wrongStage(captured, {Stage::Captured});
  if (!error.empty())
    return tl::unexpected(PlanError{std::nullopt, fmt::format("step \"{}\": {}", captured.name, error)});

  Compiled step;
  step.machine = options.plan.machine;
  step.captured = captured;
  analyse(step, mayRepeat(captured, options));

  PlanBounds bounds(step.captured, options.plan, step.remakeable ? Repetitions::Allowed : Repetitions::None);
  const auto start = std::chrono::steady_clock::now();
  tl::expected<PlannedStep, PlanError> planned = plan(step, options);
  if (!planned)
    return tl::unexpected(std::move(planned.error()));
  step.planned = std::move(planned->description);
  step.stats = planned->stats;
  step.trace = std::move(planned->trace);
  append(step.violations, checkResidency(step.planned));
  lower(step, options);
  append(step.violations, checkPreserves(step.captured, step.lowered));
  if (options.plan.boundary)
    append(step.violations, checkKeepsBoundary(*options.plan.boundary, step.lowered));
  step.planMs = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();

  const auto predicted = options.plan.backend == Backend::Virtual ? predict : predictManaged;
  step.prediction = predicted(step.lowered, step.machine);
  step.bound = bounds.must(step.lowered);
  std::tie(step.planBound, step.movingBound) = bounds.may(step.lowered);
  return step;
}

Compiled retimed(const Description &captured, const Description &lowered, CompileOptions options,
                 std::uint64_t peakBytesBefore) {
  Compiled step;
  step.machine = options.plan.machine;
  step.captured = captured;
  step.lowered = lowered;
  analyse(step, mayRepeat(captured, options));
  options.plan.budgetBytes = lowered.budgetBytes;
  PlanBounds bounds(step.captured, options.plan, step.remakeable ? Repetitions::Allowed : Repetitions::None);
  step.stats.peakPagesBefore = peakBytesBefore / captured.pageBytes;
  step.prediction = predict(step.lowered, step.machine);
  step.bound = bounds.must(step.lowered);
  std::tie(step.planBound, step.movingBound) = bounds.may(step.lowered);
  return step;
}

} // namespace pumpgraph
