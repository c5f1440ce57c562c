// SPDX-License-Identifier: Apache-2.0
// No plan beats the bound: against the true optimum of tiny steps.
#include "passes/analysis/Bound.h"
#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Prediction.h"
#include "passes/plan/PlanResidency.h"
#include "test/unit/check/Optimum.h"
#include "test/unit/check/Random.h"
#include "test/unit/check/RandomGraph.h"
#include "test/unit/check/RandomRepetitions.h"
#include "test/unit/check/SimplePlan.h"
#include "test/unit/check/StepBuilder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace pumpgraph::test {
namespace {

struct Tally {
  unsigned compared = 0;
  unsigned slower = 0;  ///< the optimum is above the time in memory: something has to move
  unsigned bounded = 0; ///< the bound says so too
  unsigned tight = 0;   ///< and is the optimum
};

Tally compareWithOptimum(BoundKind kind, std::uint64_t firstSeed, std::uint64_t count) {
  Tally tally;
  for (std::uint64_t seed = firstSeed; seed < firstSeed + count && !testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    const Description step = tinyStep(seed);
    const std::uint64_t budget = (std::max<std::uint64_t>(leastFrames(step), 1) + random.below(2)) * step.pageBytes;
    const Machine machine = slowMachine(random);
    const auto isUnsound = [&](const Description &candidate) {
      const std::optional<double> optimum = optimumUs(candidate, budget, machine, kind);
      return optimum && bound(candidate, budget, machine, kind).totalUs > *optimum + 1e-6;
    };
    const std::optional<double> optimum = optimumUs(step, budget, machine, kind);
    if (!optimum)
      continue;
    const Bound found = bound(step, budget, machine, kind);
    ++tally.compared;
    if (*optimum > found.inMemoryUs + 1e-6) {
      ++tally.slower;
      tally.bounded += found.totalUs > found.inMemoryUs + 1e-6;
      tally.tight += found.totalUs > *optimum - 1e-6;
    }
    if (found.totalUs <= *optimum + 1e-6)
      continue;
    const Description small = shrink(step, isUnsound);
    ADD_FAILURE() << "seed " << seed << ": bound " << bound(small, budget, machine, kind).totalUs << " us, optimum "
                  << *optimumUs(small, budget, machine, kind) << " us; budget " << budget << " bytes, up "
                  << machine.upBytesPerSecond << ", down " << machine.downBytesPerSecond << ", both "
                  << machine.bothBytesPerSecond << " bytes/s\n"
                  << toText(small);
  }
  fmt::print(
      "{} steps compared with their optimum; {} of them take longer than in memory, {} of these by the bound too, "
      "and {} just as long as it says\n",
      tally.compared, tally.slower, tally.bounded, tally.tight);
  return tally;
}

constexpr std::uint64_t stepCount = 4000;

TEST(BoundOfMust, isNeverAboveTheOptimum) {
  const Tally tally = compareWithOptimum(BoundKind::Must, 0, stepCount);
  EXPECT_GE(tally.compared, stepCount * 9 / 10);
  EXPECT_GE(tally.bounded, stepCount / 20);
}

TEST(BoundOfMay, isNeverAboveTheOptimum) {
  const Tally tally = compareWithOptimum(BoundKind::May, 0, stepCount);
  EXPECT_GE(tally.compared, stepCount * 9 / 10);
  EXPECT_GE(tally.bounded, stepCount / 20);
}

// The planner's plan, and the prediction of it, against the optimum: never faster, and not much slower on average.
TEST(PlanAgainstOptimum, isNeverFaster) {
  unsigned compared = 0;
  unsigned optimal = 0;
  double sumOfRatios = 0;
  for (std::uint64_t seed = 0; seed < stepCount; ++seed) {
    Random random(seed);
    const Description step = tinyStep(seed);
    PlanOptions options;
    options.processors = 1;
    options.budgetBytes = (std::max<std::uint64_t>(leastFrames(step), 1) + random.below(2)) * step.pageBytes;
    options.machine = slowMachine(random);
    // How two directions of different speed share the link is not for this test to decide.
    options.machine.downBytesPerSecond = options.machine.upBytesPerSecond;
    options.machine.bothBytesPerSecond = options.machine.upBytesPerSecond * 1.5;
    const auto plan = planResidency(step, options);
    const std::optional<double> optimum = optimumUs(step, options.budgetBytes, options.machine, BoundKind::May);
    if (!plan || !optimum || hostedBytes(plan->description) > 0) // the search knows nothing of hosted pages
      continue;
    const double predicted = predict(plan->description, options.machine).totalUs;
    ASSERT_GE(predicted, *optimum - 1e-6) << "seed " << seed << '\n' << toText(step) << toText(plan->description);
    ++compared;
    optimal += predicted < *optimum + 1e-6;
    sumOfRatios += *optimum > 0 ? predicted / *optimum : 1;
  }
  fmt::print("{} plans compared with the optimum: {} are optimal, on average they take {:.3f} of it\n", compared,
             optimal, sumOfRatios / compared);
  EXPECT_GE(compared, stepCount * 3 / 4);
}

// Plans in which nodes run again are never faster than the optimum that may run them again; that is never above the one
// that may not.
TEST(OptimumOfRepetitions, isNeverAboveAPlan) {
  unsigned compared = 0;
  unsigned faster = 0;
  unsigned plans = 0;
  for (std::uint64_t seed = 0; seed < stepCount; ++seed) {
    Random random(seed);
    const Description pure = repeatableStep(tinyStep(seed), seed);
    Description impure = pure;
    for (Node &node : impure.nodes)
      node.isPure = false;
    const std::uint64_t frames = std::max<std::uint64_t>(leastFrames(pure), 1) + random.below(2);
    Machine machine = slowMachine(random);
    machine.downBytesPerSecond = machine.upBytesPerSecond; // as above
    machine.bothBytesPerSecond = machine.upBytesPerSecond * 1.5;
    const auto best = optimumUs(pure, frames * pure.pageBytes, machine, BoundKind::May);
    const auto moving = optimumUs(impure, frames * pure.pageBytes, machine, BoundKind::May);
    if (!best || !moving)
      continue;
    ++compared;
    ASSERT_LE(*best, *moving + 1e-6) << "seed " << seed << '\n' << toText(pure);
    faster += *best < *moving - 1e-6;
    const RepeatingStep repeating = withRepetitions(pure, seed, false);
    const auto plan = simplePlan(repeating.step, frames, seed);
    if (!plan || repeating.repetitions == 0 || hostedBytes(*plan) > 0)
      continue;
    ++plans;
    ASSERT_GE(predict(*plan, machine).totalUs, *best - 1e-6) << "seed " << seed << '\n'
                                                             << toText(pure) << toText(*plan);
  }
  fmt::print("{} steps: in {} of them the optimum runs nodes again; {} plans that do\n", compared, faster, plans);
  EXPECT_GE(compared, stepCount * 3 / 4);
  EXPECT_GE(faster, stepCount / 50);
  EXPECT_GE(plans, stepCount / 20);
}

// The bound of plans that may run nodes again, against the optimum that may.
void compareRepeatingBound(BoundKind kind) {
  unsigned compared = 0;
  unsigned slower = 0;  // the optimum is above the time in memory
  unsigned bounded = 0; // the bound says so too
  unsigned lower = 0;   // than the bound of plans without
  const auto boundOf = [&](const Description &step, std::uint64_t budget, const Machine &machine,
                           Repetitions repetitions) {
    return bound(step, budget, machine, kind, Backend::Virtual, std::nullopt, repetitions);
  };
  for (std::uint64_t seed = 0; seed < stepCount && !testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    const Description step = repeatableStep(tinyStep(seed), seed);
    const std::uint64_t budget = (std::max<std::uint64_t>(leastFrames(step), 1) + random.below(2)) * step.pageBytes;
    const Machine machine = slowMachine(random);
    const Bound moving = boundOf(step, budget, machine, Repetitions::None);
    const Bound found = boundOf(step, budget, machine, Repetitions::Allowed);
    EXPECT_LE(found.totalUs, moving.totalUs + 1e-6) << "seed " << seed << '\n' << toText(step);
    lower += found.totalUs < moving.totalUs - 1e-6;
    const std::optional<double> optimum = optimumUs(step, budget, machine, kind, true);
    if (!optimum)
      continue;
    ++compared;
    if (*optimum > found.inMemoryUs + 1e-6) {
      ++slower;
      bounded += found.totalUs > found.inMemoryUs + 1e-6;
    }
    if (found.totalUs <= *optimum + 1e-6)
      continue;
    const Description small = shrink(step, [&](const Description &candidate) {
      const std::optional<double> best = optimumUs(candidate, budget, machine, kind, true);
      return best && boundOf(candidate, budget, machine, Repetitions::Allowed).totalUs > *best + 1e-6;
    });
    ADD_FAILURE() << "seed " << seed << ": bound " << boundOf(small, budget, machine, Repetitions::Allowed).totalUs
                  << " us, optimum " << *optimumUs(small, budget, machine, kind, true) << " us; budget " << budget
                  << " bytes, up " << machine.upBytesPerSecond << ", down " << machine.downBytesPerSecond << ", both "
                  << machine.bothBytesPerSecond << " bytes/s\n"
                  << toText(small);
  }
  fmt::print("{} steps compared with their optimum; {} of them take longer than in memory, {} of these by the bound "
             "too; {} have a lower bound than without repetitions\n",
             compared, slower, bounded, lower);
  EXPECT_GE(compared, stepCount * 3 / 4);
  EXPECT_GE(bounded, stepCount / 50);
  EXPECT_GE(lower, stepCount / 200);
}

TEST(BoundWithRepetitionsOfMust, isNeverAboveTheOptimum) {
  compareRepeatingBound(BoundKind::Must);
}

TEST(BoundWithRepetitionsOfMay, isNeverAboveTheOptimum) {
  compareRepeatingBound(BoundKind::May);
}

// The search itself, by hand: two pages take turns in one frame. Up and down take 2 us each, kernels 10 us.
class OptimumByHand : public testing::Test {
protected:
  OptimumByHand() {
    machine_.upBytesPerSecond = machine_.downBytesPerSecond = 2e6;
    machine_.bothBytesPerSecond = 4e6;
  }
  NodeIndex kernel(std::vector<Access> accesses, double costUs = 10) {
    const NodeIndex index = builder_.kernel("kernel", std::move(accesses));
    builder_.step().nodes[index].costUs = costUs;
    return index;
  }
  void makePure(NodeIndex node) { builder_.step().nodes[node].isPure = true; }
  double optimum(std::uint64_t pages) {
    return optimumUs(builder_.step(), pages * StepBuilder::pageBytes, machine_, BoundKind::May).value_or(-1);
  }
  StepBuilder builder_{1};
  Machine machine_;
};

TEST_F(OptimumByHand, savesAndRestoresWhatIsDisplaced) {
  const BufferIndex a = builder_.buffer("a", {0});
  const BufferIndex b = builder_.buffer("b", {0});
  kernel({builder_.write(a)});
  kernel({builder_.write(b)});
  kernel({builder_.read(a)});
  EXPECT_DOUBLE_EQ(optimum(1), 34); // a leaves, b is dead after its kernel, a comes back
  EXPECT_DOUBLE_EQ(optimum(2), 30);
}

TEST_F(OptimumByHand, dropsWhatIsClean) {
  const BufferIndex a = builder_.buffer("a", {0}, StepBuilder::liveInOut);
  const BufferIndex b = builder_.buffer("b", {0}, StepBuilder::liveInOut);
  kernel({builder_.read(a)});
  kernel({builder_.read(b)});
  EXPECT_DOUBLE_EQ(optimum(1), 24); // both start and end in host memory, or b is resident and must come back
  EXPECT_DOUBLE_EQ(optimum(2), 20);
}

TEST_F(OptimumByHand, mirrorsWhatIsSavedInTimeAnyway) {
  const BufferIndex a = builder_.buffer("a", {0}, StepBuilder::liveInOut);
  const BufferIndex b = builder_.buffer("b", {0});
  kernel({builder_.read(a)});
  kernel({builder_.write(b)});
  kernel({builder_.update(a)});
  kernel({});                       // hides that a is saved
  EXPECT_DOUBLE_EQ(optimum(1), 42); // a comes back once; in one place only at the boundary it would move once more
  EXPECT_DOUBLE_EQ(optimum(2), 40);
}

TEST_F(OptimumByHand, hidesTransfersBehindKernels) {
  const BufferIndex a = builder_.buffer("a", {0});
  const BufferIndex b = builder_.buffer("b", {0});
  const BufferIndex c = builder_.buffer("c", {0});
  kernel({builder_.write(a)});
  kernel({builder_.write(b)});
  kernel({builder_.write(c)});
  kernel({builder_.read(a), builder_.read(c)});
  EXPECT_DOUBLE_EQ(optimum(2), 40); // b is dead when c is written
}

TEST_F(OptimumByHand, runsAgainWhatTakesLongerToMove) {
  const BufferIndex a = builder_.buffer("a", {0});
  const BufferIndex b = builder_.buffer("b", {0});
  const NodeIndex make = kernel({builder_.write(a)}, 1);
  kernel({builder_.write(b)});
  kernel({builder_.read(a)});
  EXPECT_DOUBLE_EQ(optimum(1), 25); // a leaves and comes back
  makePure(make);
  EXPECT_DOUBLE_EQ(optimum(1), 22);
  builder_.step().nodes[make].costUs = 5;
  EXPECT_DOUBLE_EQ(optimum(1), 29);
}

TEST_F(OptimumByHand, runsChainsAgainOrNothing) {
  const BufferIndex a = builder_.buffer("a", {0});
  const BufferIndex b = builder_.buffer("b", {0});
  const NodeIndex make = kernel({builder_.write(a)}, 1);
  const NodeIndex change = kernel({builder_.update(a)}, 1);
  kernel({builder_.write(b)});
  kernel({builder_.read(a)});
  makePure(change);
  EXPECT_DOUBLE_EQ(optimum(1), 26);
  makePure(make);
  EXPECT_DOUBLE_EQ(optimum(1), 24);
}

TEST_F(OptimumByHand, runsNothingAgainOnOtherOperands) {
  for (const bool changes : {false, true}) {
    builder_ = StepBuilder(1);
    const BufferIndex x = builder_.exclusive("x", {0});
    const BufferIndex a = builder_.buffer("a", {1});
    const BufferIndex b = builder_.buffer("b", {1});
    makePure(kernel({builder_.read(x), builder_.write(a)}, 1));
    kernel({builder_.write(b), changes ? builder_.update(x) : builder_.read(x)});
    kernel({builder_.read(a)});
    EXPECT_DOUBLE_EQ(optimum(2), changes ? 25 : 22);
  }
}

TEST_F(OptimumByHand, noPlanWithoutRoom) {
  const BufferIndex a = builder_.buffer("a", {0});
  const BufferIndex b = builder_.buffer("b", {0});
  kernel({builder_.read(a), builder_.read(b)});
  EXPECT_EQ(optimum(1), -1);
  EXPECT_DOUBLE_EQ(optimum(2), 10);
}

} // namespace
} // namespace pumpgraph::test
