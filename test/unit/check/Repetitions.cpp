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
    Compiled step;
    step.captured = repeatableStep(randomStep(seed), seed);
    const RepeatingStep repeating = withRepetitions(step.captured, seed);
    const auto plan = simplePlan(repeating.step, leastFrames(repeating.step) + seed % 4, seed);
    if (!plan || repeating.repetitions == 0)
      continue;
    step.lowered = simpleLowering(*plan);
    step.machine = slowMachine(random);
    step.violations = checkResidency(step.lowered);
    const nlohmann::json line{{"seed", seed},
                              {"mistake", toText(repeating.mistake)},
                              {"violation", step.checked() ? "" : step.violations[0].message},
                              {"plan", nlohmann::json::parse(planToJson(step))}};
    fmt::print("{}\n", line.dump());
  }
  return EXIT_SUCCESS;
}

} // namespace
} // namespace pumpgraph::test

int main(int argumentCount, char **arguments) {
  return pumpgraph::test::runSeeds(argumentCount, arguments, pumpgraph::test::writeAll);
}
