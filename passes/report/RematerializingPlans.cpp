// SPDX-License-Identifier: Apache-2.0
#include "passes/report/RematerializingPlans.h"

#include "passes/analysis/Prediction.h"
#include "passes/analysis/Timeline.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/Processors.h"
#include "passes/rematerialize/ChooseRepetitions.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

namespace pumpgraph {
namespace {

/// Of the budget: the estimate that the search goes by knows nothing of pages, frames and the length of copies.
constexpr std::array<double, 2> sharesOfBudget = {1.0, 0.9};

/// Nothing if it has no repetition.
std::optional<Description> repeatingStep(const Description &captured, const PlanOptions &options, double share) {
  const RepetitionOptions asked{static_cast<std::uint64_t>(static_cast<double>(options.budgetBytes) * share),
                                options.machine};
  const std::vector<Turn> turns = chooseRepetitions(captured, asked);
  if (std::ranges::none_of(turns, &Turn::again))
    return std::nullopt;
  return withRepetitions(captured, turns);
}

/// The captured step, and the same with repetitions, each different from the others.
std::vector<Description> candidatesFor(const Description &captured, const PlanOptions &options) {
  std::array<std::optional<Description>, sharesOfBudget.size()> found;
  sideBySide(found.size(), processorsOf(options.processors),
             [&](std::size_t i) { found[i] = repeatingStep(captured, options, sharesOfBudget[i]); });
  std::vector<Description> candidates{captured};
  for (std::optional<Description> &step : found)
    if (step)
      candidates.push_back(std::move(*step));
  return candidates;
}

struct Planned {
  tl::expected<PlannedStep, PlanError> step = tl::unexpected(PlanError{});
  double us = std::numeric_limits<double>::infinity();
};

/// Plans each of the candidates that are wanted, side by side.
void planEach(const std::vector<Description> &candidates, const std::vector<std::size_t> &wanted,
              const std::vector<PlanOptions> &options, std::vector<Planned> &plans) {
  const unsigned processors = processorsOf(options[0].processors);
  const unsigned together = std::min<unsigned>(processors, std::max<unsigned>(1, static_cast<unsigned>(wanted.size())));
  sideBySide(wanted.size(), together, [&](std::size_t i) {
    const std::size_t candidate = wanted[i];
    PlanOptions own = options[candidate];
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
  // Of quick plans with repetitions, those that may turn out to be the fastest are made in full.
  static constexpr double close = 1.3;
  if (options.budgetBytes == 0 || Timeline(captured).peakPages() * captured.pageBytes <= options.budgetBytes)
    return planResidency(captured, options);
  const std::vector<Description> candidates = candidatesFor(captured, options);
  std::vector<PlanOptions> own(candidates.size(), options);
  for (std::size_t i = 1; i < own.size(); ++i)
    own[i].isQuick = true;
  std::vector<Planned> plans(candidates.size());
  std::vector<std::size_t> wanted(candidates.size());
  std::iota(wanted.begin(), wanted.end(), std::size_t{0});
  planEach(candidates, wanted, own, plans);

  const auto isFaster = [](const Planned &one, const Planned &other) { return one.us < other.us; };
  const double leastUs = std::ranges::min_element(plans, isFaster)->us;
  std::erase_if(wanted, [&](std::size_t i) { return i == 0 || options.isQuick || !(plans[i].us <= leastUs * close); });
  planEach(candidates, wanted, std::vector(candidates.size(), options), plans);

  Planned &best = *std::ranges::min_element(plans, isFaster);
  if (best.step && plans[0].step)
    best.step->stats.peakPagesBefore = plans[0].step->stats.peakPagesBefore; // the captured step's
  return std::move(best.step);
}

} // namespace pumpgraph
