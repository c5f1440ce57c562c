// SPDX-License-Identifier: Apache-2.0
// Writes random plans in which nodes run again, and whether the checker accepts them, as JSON lines, for programs that
// judge them by other code (test/outsider): `check_repetitions FIRST_SEED COUNT`.
#include "passes/check/CheckResidency.h"
#include "passes/report/Summary.h"
#include "test/unit/check/Optimum.h"
#include "test/unit/check/RandomGraph.h"
#include "test/unit/check/RandomRepetitions.h"
#include "test/unit/check/SimplePlan.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdlib>

namespace pumpgraph::test {
namespace {

int writeAll(std::uint64_t firstSeed, std::uint64_t count) {
  for (std::uint64_t seed = firstSeed; seed < firstSeed + count; ++seed) {
    Random random(seed);
    Summary summary;
    summary.captured = repeatableStep(randomStep(seed), seed);
    const RepeatingStep repeating = withRepetitions(summary.captured, seed);
    const auto plan = simplePlan(repeating.step, leastFrames(repeating.step) + seed % 4, seed);
    if (!plan || repeating.repetitions == 0)
      continue;
    summary.lowered = simpleLowering(*plan);
    summary.machine = slowMachine(random);
    const std::vector<Violation> violations = checkResidency(summary.lowered);
    const nlohmann::json line{{"seed", seed},
                              {"mistake", toText(repeating.mistake)},
                              {"violation", violations.empty() ? "" : violations[0].message},
                              {"plan", nlohmann::json::parse(planToJson(summary))}};
    fmt::print("{}\n", line.dump());
  }
  return EXIT_SUCCESS;
}

} // namespace
} // namespace pumpgraph::test

int main(int argumentCount, char **arguments) {
  return pumpgraph::test::runSeeds(argumentCount, arguments, pumpgraph::test::writeAll);
}
