// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline/RematerializingPlans.h"

#include "passes/analysis/Bound.h"
#include "passes/analysis/Prediction.h"
#include "passes/analysis/Timeline.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/Workers.h"
#include "passes/rematerialize/ChooseRepetitions.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

namespace pumpgraph {
namespace {

/// Of the budget: the estimate that the search goes by knows nothing of pages, frames and the length of copies.
constexpr std::array<double, 6> sharesOfBudget = {1.0, 0.95, 0.9, 0.85, 0.8, 0.75};

/// The captured step, and the same with repetitions, each different from the others.
std::vector<Description> candidatesFor(const Description &captured, const PlanOptions &options, Workers &workers) {
  std::array<std::vector<Turn>, sharesOfBudget.size()> found;
  workers.forEach(found.size(), [&](std::size_t i) {
    const double bytes = static_cast<double>(options.budgetBytes) * sharesOfBudget[i];
    found[i] = chooseRepetitions(captured, {static_cast<std::uint64_t>(bytes), options.machine});
  });
  std::vector<Description> candidates{captured};
  for (std::size_t i = 0; i < found.size(); ++i)
    if (std::ranges::any_of(found[i], &Turn::again) &&
        std::find(found.begin(), found.begin() + i, found[i]) == found.begin() + i)
      candidates.push_back(withRepetitions(captured, found[i]));
  return candidates;
}

struct Planned {
  tl::expected<PlannedStep, PlanError> step = tl::unexpected(PlanError{});
  double us = std::numeric_limits<double>::infinity();
};

/// Plans each of the candidates that are wanted, side by side.
void planEach(const std::vector<Description> &candidates, const std::vector<std::size_t> &wanted,
              const PlanOptions &options, std::vector<Planned> &plans, Workers &workers) {
  const unsigned processors = workers.processors();
  const unsigned together = std::min<unsigned>(processors, std::max<unsigned>(1, static_cast<unsigned>(wanted.size())));
  workers.forEach(wanted.size(), [&](std::size_t i) {
    const std::size_t candidate = wanted[i];
    PlanOptions own = options;
    own.processors = processors / together;
    Planned made;
    made.step = planResidency(candidates[candidate], own);
    if (made.step)
      made.us = predict(lowerVirtual(made.step->description), own.machine).totalUs;
    if (!plans[candidate].step || made.us < plans[candidate].us)
      plans[candidate] = std::move(made);
  });
}

} // namespace

tl::expected<PlannedStep, PlanError> planRematerializing(const Description &captured, const PlanOptions &options) {
  static constexpr double close = 1.3; // of a quick plan with repetitions, where the one in full may be the fastest
  if (options.budgetBytes == 0 || Timeline(captured).peakPages() * captured.pageBytes <= options.budgetBytes)
    return planResidency(captured, options);
  Workers workers(options.processors);
  const std::vector<Description> candidates = candidatesFor(captured, options, workers);
  if (candidates.size() == 1)
    return planResidency(captured, options);
  PlanOptions quick = options;
  quick.isQuick = true;
  std::vector<Planned> plans(candidates.size());
  std::vector<std::size_t> wanted(candidates.size());
  std::iota(wanted.begin(), wanted.end(), std::size_t{0});
  planEach(candidates, wanted, quick, plans, workers);

  const auto isFaster = [](const Planned &one, const Planned &other) { return one.us < other.us; };
  if (!options.isQuick) {
    const auto repeating = std::min_element(plans.begin() + 1, plans.end(), isFaster);
    const double leastUs = std::min(plans[0].us, repeating->us);
    wanted.clear();
    if (repeating->us <= leastUs * close)
      wanted.push_back(static_cast<std::size_t>(repeating - plans.begin()));
    if (bound(captured, options.budgetBytes, options.machine, BoundKind::May).totalUs < leastUs)
      wanted.push_back(0);
    planEach(candidates, wanted, options, plans, workers);
  }
  Planned &best = *std::ranges::min_element(plans, isFaster);
  if (best.step && plans[0].step) {
    best.step->stats.peakPagesBefore = plans[0].step->stats.peakPagesBefore; // the captured step's
    best.step->stats.movesUs = &best == &plans[0] ? 0 : plans[0].us;
  }
  return std::move(best.step);
}

} // namespace pumpgraph
