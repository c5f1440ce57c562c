// SPDX-License-Identifier: Apache-2.0
#include "passes/report/RematerializingPlans.h"

#include "passes/analysis/Prediction.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/Processors.h"
#include "passes/rematerialize/ChooseRepetitions.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace pumpgraph {
namespace {

/// Of the budget: the estimate that the search goes by knows nothing of pages, frames and the length of copies.
constexpr std::array<double, 2> sharesOfBudget = {1.0, 0.9};

bool moves(const PlannedStep &step) {
  return step.stats.upBytes + step.stats.downBytes + step.stats.hostBytes > 0;
}

/// Nothing if it has no repetition.
std::optional<Description> repeatingStep(const Description &captured, const PlanOptions &options, double share) {
  const RepetitionOptions asked{static_cast<std::uint64_t>(static_cast<double>(options.budgetBytes) * share),
                                options.machine};
  const std::vector<Turn> turns = chooseRepetitions(captured, asked);
  if (std::ranges::none_of(turns, &Turn::again))
    return std::nullopt;
  return withRepetitions(captured, turns);
}

} // namespace

tl::expected<PlannedStep, PlanError> planRematerializing(const Description &captured, const PlanOptions &options) {
  tl::expected<PlannedStep, PlanError> best = planResidency(captured, options);
  if (options.budgetBytes == 0 || (best && !moves(*best)))
    return best;

  struct Candidate {
    std::optional<PlannedStep> step;
    double us = 0;
  };
  std::array<Candidate, sharesOfBudget.size()> candidates;
  const unsigned processors = processorsOf(options.processors);
  const unsigned wanted = std::min<unsigned>(processors, candidates.size());
  sideBySide(candidates.size(), wanted, [&](std::size_t i) {
    const std::optional<Description> step = repeatingStep(captured, options, sharesOfBudget[i]);
    if (!step)
      return;
    PlanOptions own = options;
    own.processors = processors / wanted;
    tl::expected<PlannedStep, PlanError> plan = planResidency(*step, own);
    if (!plan)
      return;
    candidates[i].us = predict(lowerVirtual(plan->description), options.machine).totalUs;
    candidates[i].step = std::move(*plan);
  });
  double bestUs = best ? predict(lowerVirtual(best->description), options.machine).totalUs
                       : std::numeric_limits<double>::infinity();
  for (Candidate &candidate : candidates)
    if (candidate.step && candidate.us < bestUs) {
      bestUs = candidate.us;
      const std::uint64_t peakPages = best ? best->stats.peakPagesBefore : candidate.step->stats.peakPagesBefore;
      best = std::move(*candidate.step);
      best->stats.peakPagesBefore = peakPages; // the captured step's
    }
  return best;
}

} // namespace pumpgraph
