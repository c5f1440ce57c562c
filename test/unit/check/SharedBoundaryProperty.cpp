// SPDX-License-Identifier: Apache-2.0
// Random pairs of steps: the second planned into the boundary of the first. Each must be right for itself, and both
// must be right in turns. Where there is no such plan, the first is planned again with the pages apart that nodes of
// the second use together.
//
//   check-shared-boundary [FIRST_SEED [COUNT]]
#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Prediction.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/PlanResidency.h"
#include "test/unit/check/Interpreter.h"
#include "test/unit/check/Random.h"
#include "test/unit/check/RandomGraph.h"
#include "test/unit/check/SharedSteps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

namespace pumpgraph::test {
namespace {

struct Tally {
  std::uint64_t pairs = 0;
  std::uint64_t shared = 0;
  std::uint64_t moving = 0;  ///< of those, with transfers in the second step
  std::uint64_t hosting = 0; ///< with given pages in host memory at all times
  std::uint64_t again = 0;   ///< of those, only because the first step was planned again
  std::uint64_t refused = 0; ///< although the second step can be planned for itself
  std::vector<double> slowdowns;
};

std::optional<std::string> wrongIn(const Description &captured, const Description &planned, std::uint64_t seed) {
  if (const std::vector<Violation> violations = checkResidency(planned, 1); !violations.empty())
    return violations[0].message;
  if (const std::vector<Violation> violations = checkPreserves(captured, planned, 1); !violations.empty())
    return violations[0].message;
  const Reference reference(captured);
  return Interpreter(reference, planned).runRandom(seed, 2);
}

/// The first step with frames left for what is exclusive to the second, and what its nodes use together apart.
tl::expected<PlannedStep, PlanError> planAgain(const StepPair &pair, PlanOptions options) {
  options.apart = usedTogether(pair);
  for (BufferIndex b = 0; b < pair.isNew.size(); ++b)
    if (pair.isNew[b] && !pair.second.buffers[b].isPrivate)
      options.budgetBytes -=
          std::min(options.budgetBytes - pair.first.pageBytes, pair.second.pageCount(b) * pair.second.pageBytes);
  return planResidency(pair.first, options);
}

std::optional<std::string> judge(std::uint64_t seed, Tally &tally) {
  const StepPair pair = randomPair(seed);
  Random random(mix(seed, 3));
  PlanOptions options;
  options.processors = 1;
  const std::uint64_t least = std::max(leastFrames(pair.first), leastFrames(pair.second));
  options.budgetBytes =
      (random.chance(10) ? std::max<std::uint64_t>(1, least - 1) : least + random.below(6)) * pair.first.pageBytes;
  auto first = planResidency(pair.first, options);
  const auto alone = planResidency(pair.second, options);
  if (!first || !alone)
    return std::nullopt;
  ++tally.pairs;
  const PlanOptions optionsOfFirst = options;
  Description boundary = boundaryAfter(pair, first->description);
  options.boundary = &boundary;
  options.budgetBytes += random.chance(30) ? random.below(4) * pair.first.pageBytes : 0;
  auto second = planResidency(pair.second, options);
  if (!second) {
    if (auto again = planAgain(pair, optionsOfFirst)) {
      if (const auto wrong = notApart(again->description, usedTogether(pair)))
        return *wrong + "\n" + toText(again->description);
      if (const auto wrong = wrongIn(pair.first, again->description, seed))
        return "the first step planned again: " + *wrong + "\n" + toText(again->description);
      first = std::move(again);
      boundary = boundaryAfter(pair, first->description);
      second = planResidency(pair.second, options);
      tally.again += second.has_value();
    }
  }
  if (!second) {
    ++tally.refused;
    return std::nullopt;
  }
  ++tally.shared;
  tally.moving += second->stats.evictions + second->stats.prefetches > 0;
  tally.hosting += hostedBytes(first->description) > 0;
  const double aloneUs = predict(lowerVirtual(alone->description), options.machine).totalUs;
  tally.slowdowns.push_back(aloneUs > 0 ? predict(lowerVirtual(second->description), options.machine).totalUs / aloneUs
                                        : 1);

  const auto fail = [&](const std::string &what, const std::string &message) {
    return fmt::format("{}: {}\nthe first plan:\n{}the second:\n{}", what, message, toText(first->description),
                       toText(second->description));
  };
  if (const auto wrong = wrongIn(pair.second, second->description, seed))
    return fail("the second plan", *wrong);
  for (const Description &step : {second->description, lowerVirtual(second->description)})
    if (const std::vector<Violation> violations = checkKeepsBoundary(boundary, step); !violations.empty())
      return fail("the boundary", violations[0].message);
  const Description &a = pair.first, &b = pair.second;
  const Description &plannedA = first->description, &plannedB = second->description;
  if (const auto wrong = wrongIn(inTurns({&a, &b, &b, &a}, a, pair.isNew),
                                 inTurns({&plannedA, &plannedB, &plannedB, &plannedA}, plannedA, pair.isNew), seed))
    return fail("in turns", *wrong);
  return std::nullopt;
}

int runAll(std::uint64_t firstSeed, std::uint64_t count) {
  Tally tally;
  for (std::uint64_t seed = firstSeed; seed < firstSeed + count; ++seed)
    if (const std::optional<std::string> failure = judge(seed, tally)) {
      fmt::print("seed {}: {}\n", seed, *failure);
      return EXIT_FAILURE;
    }
  std::sort(tally.slowdowns.begin(), tally.slowdowns.end());
  const auto quantile = [&](double share) {
    return tally.slowdowns.empty()
               ? 0
               : tally.slowdowns[static_cast<std::size_t>(share * static_cast<double>(tally.slowdowns.size() - 1))];
  };
  fmt::print("{} pairs from seed {}: {} share a boundary, {} of them with transfers in the second step, {} with hosted "
             "pages, {} because the first was planned again; {} cannot\n",
             tally.pairs, firstSeed, tally.shared, tally.moving, tally.hosting, tally.again, tally.refused);
  fmt::print("the second step takes {:.2f} times as long as for itself in the median, {:.2f} at 90 %\n", quantile(0.5),
             quantile(0.9));
  const bool isWorthIt = tally.shared * 3 >= count && tally.moving * 5 >= count && tally.hosting * 100 >= count;
  if (!isWorthIt)
    fmt::print("too few of them say anything\n");
  return isWorthIt ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace
} // namespace pumpgraph::test

int main(int argumentCount, char **arguments) {
  return pumpgraph::test::runSeeds(argumentCount, arguments, pumpgraph::test::runAll);
}
