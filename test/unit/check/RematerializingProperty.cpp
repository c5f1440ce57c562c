// SPDX-License-Identifier: Apache-2.0
// Random steps whose plans may run pure nodes again, through sequence, planner, lowering, checker, prediction and
// interpreter: they must agree.
//
//   check-rematerializing-property [FIRST_SEED [COUNT]]
//
// Prints how many steps it ran; the first step that fails is printed with its seed, made as small as possible.
#include "passes/analysis/Bound.h"
#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Prediction.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/pipeline/RematerializingPlans.h"
#include "passes/plan/PlanResidency.h"
#include "passes/rematerialize/FirstTouches.h"
#include "passes/rematerialize/Sequence.h"
#include "test/unit/check/Interpreter.h"
#include "test/unit/check/Random.h"
#include "test/unit/check/RandomGraph.h"
#include "test/unit/check/RandomRepetitions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace pumpgraph::test {
namespace {

struct Tally {
  std::uint64_t steps = 0;
  std::uint64_t sequences = 0; ///< with repetitions, of values given up at random
  std::uint64_t planned = 0;
  std::uint64_t moving = 0;    ///< plans with transfers, where no node may run again
  std::uint64_t repeating = 0; ///< plans with repetitions
};

/// What is wrong, and where it was seen: a smaller step must fail in the same place.
struct Failure {
  std::string place;
  std::string message;
};

constexpr double tolerance = 1e-6; // microseconds

/// In most steps nodes take little, and leave most of what they write to the step alone.
Description repeatingStep(std::uint64_t seed) {
  Description step = repeatableStep(randomStep(seed), seed);
  Random random(mix(seed, 3));
  if (!random.chance(70))
    return step;
  for (Buffer &buffer : step.buffers)
    if (random.chance(80)) {
      buffer.isPrivate = true;
      buffer.liveIn = buffer.liveOut = false;
    }
  for (Node &node : step.nodes) {
    node.costUs /= 10;
    if (node.kind != NodeKind::Kernel)
      continue;
    node.isPure = node.isPure || random.chance(80);
    for (Access &access : node.accesses)
      if ((access.may & modeWrite) != 0 && random.chance(70)) {
        access.may = access.must = modeWrite;
        access.evidence = Evidence::Declared;
      }
  }
  return step;
}

/// A tight budget, and a link that is slow beside kernels.
PlanOptions optionsFor(std::uint64_t seed, const Description &captured) {
  Random random(mix(seed, 1));
  PlanOptions options;
  options.processors = 1;
  options.budgetBytes = (std::max<std::uint64_t>(leastFrames(captured), 1) + random.below(3)) * captured.pageBytes;
  const double pageBytes = static_cast<double>(captured.pageBytes);
  Machine &machine = options.machine;
  machine.upBytesPerSecond = pageBytes / static_cast<double>(random.between(5, 40)) * 1e6;
  machine.downBytesPerSecond = pageBytes / static_cast<double>(random.between(5, 40)) * 1e6;
  machine.bothBytesPerSecond =
      std::max(machine.upBytesPerSecond, machine.downBytesPerSecond) +
      std::min(machine.upBytesPerSecond, machine.downBytesPerSecond) * static_cast<double>(random.below(5)) / 4;
  machine.copyOverheadUs = static_cast<double>(random.below(3));
  return options;
}

std::uint64_t repetitionsIn(const Description &step) {
  return static_cast<std::uint64_t>(std::ranges::count(step.nodes, NodeKind::Rematerialize, &Node::kind));
}

class Property {
public:
  Property(const Description &captured, std::uint64_t seed)
      : captured_(claimed(captured)), seed_(seed), options_(optionsFor(seed, captured)), reference_(captured_) {}

  std::optional<Failure> run(Tally &tally) {
    for (std::uint64_t draw = 0; draw < 4; ++draw)
      if (auto failure = judgeSequence(mix(seed_, draw), tally))
        return failure;
    return judgePlans(tally);
  }

private:
  static Description claimed(Description captured) {
    claimFirstTouches(captured);
    return captured;
  }

  /// Values given up at random.
  std::optional<Failure> judgeSequence(std::uint64_t seed, Tally &tally) const {
    Random random(seed);
    const StepValues values(captured_);
    Lifetimes lifetimes(values);
    const auto percent = static_cast<unsigned>(random.between(5, 60));
    for (std::uint32_t i = 0; i < values.values().size(); ++i) {
      const ValueIndex index{i};
      const Value &value = values.values()[index];
      lifetimes.kept[index] = random.chance(30);
      if (value.maker == noMaker || !values.mayRunAgain(value.maker) || value.readers.empty() ||
          !random.chance(percent))
        continue;
      const std::size_t use = random.below(value.readers.size());
      lifetimes.droppedAfter[index] = use == 0 ? value.maker : value.readers[use - 1];
    }
    const auto turns = sequenceOf(captured_, values, lifetimes);
    if (!turns || std::ranges::none_of(*turns, &Turn::again))
      return std::nullopt;
    ++tally.sequences;
    return judge("sequence", withoutLimit(pumpgraph::withRepetitions(captured_, *turns)));
  }

  std::optional<Failure> judgePlans(Tally &tally) const {
    const auto moving = planResidency(captured_, options_);
    const auto plan = planRematerializing(captured_, options_);
    if (!plan)
      return moving ? std::optional(Failure{"refusal", plan.error().message}) : std::nullopt;
    ++tally.planned;
    tally.repeating += repetitionsIn(plan->description) > 0;
    if (auto failure = judge("plan", plan->description))
      return failure;
    const Description lowered = lowerVirtual(plan->description);
    if (auto failure = judge("lowered plan", lowered))
      return failure;
    const Prediction prediction = predict(lowered, options_.machine);
    if (moving) {
      tally.moving += moving->stats.upBytes + moving->stats.downBytes > 0;
      const double movingUs = predict(lowerVirtual(moving->description), options_.machine).totalUs;
      if (prediction.totalUs > movingUs + tolerance)
        return Failure{"slower", fmt::format("{} us, but {} us without repetitions", prediction.totalUs, movingUs)};
    }
    if (const std::optional<std::string> message = impossible(lowered, prediction))
      return Failure{"prediction", *message + '\n' + toText(lowered)};
    for (const BoundKind kind : {BoundKind::Must, BoundKind::May}) {
      Description bounded = captured_;
      for (BufferIndex buffer = 0; buffer < bounded.buffers.size(); ++buffer)
        bounded.buffers[buffer].hosted = lowered.buffers[buffer].hosted;
      const double limitUs = bound(bounded, lowered.budgetBytes, options_.machine, kind, Backend::Virtual, std::nullopt,
                                   Repetitions::Allowed)
                                 .totalUs;
      if (prediction.totalUs < limitUs - tolerance)
        return Failure{"bound", fmt::format("predicted {} us, but {} is {} us\n{}", prediction.totalUs,
                                            kind == BoundKind::May ? "planBound" : "bound", limitUs, toText(lowered))};
    }
    if (seed_ % 8 != 0)
      return std::nullopt;
    PlanOptions threads = options_;
    threads.processors = 3;
    if (const auto again = planRematerializing(captured_, threads);
        !again || toText(again->description) != toText(plan->description))
      return Failure{"determinism", "a second planning, in more threads, gives another plan"};
    return std::nullopt;
  }

  std::optional<Failure> judge(const std::string &what, const Description &step) const {
    const auto fail = [&](const char *by, const std::string &message) {
      return Failure{what + ", " + by, message + "\nthe " + what + ":\n" + toText(step)};
    };
    if (const std::vector<Violation> violations = checkResidency(step, 1); !violations.empty())
      return fail("checkResidency", violations[0].message);
    if (const std::vector<Violation> violations = checkPreserves(captured_, step, 1); !violations.empty())
      return fail("checkPreserves", violations[0].message);
    Interpreter interpreter(reference_, step);
    std::optional<std::string> wrong = interpreter.runRandom(seed_, 2);
    if (!wrong && seed_ % 4 == 0)
      wrong = interpreter.runAllDelays(seed_);
    return wrong ? std::optional(fail("interpreter", *wrong)) : std::nullopt;
  }

  /// Why a prediction is no execution of the step.
  std::optional<std::string> impossible(const Description &step, const Prediction &prediction) const {
    const std::vector<NodeTimes> &times = prediction.nodes;
    if (times.size() != step.nodes.size())
      return "some nodes have no times";
    double end = 0;
    for (NodeIndex index = 0; index < step.nodes.size(); ++index) {
      const Node &node = step.nodes[index];
      end = std::max(end, times[index].endUs);
      const double took = times[index].endUs - times[index].startUs;
      const double cost = isAdded(node.kind) || std::isnan(node.costUs) ? 0 : node.costUs;
      if (took < cost - tolerance)
        return fmt::format("node {} costs {} us but takes {} us", index, cost, took);
    }
    for (const Edge &edge : step.edges)
      if (edge.kind == EdgeKind::Full && times[edge.to].startUs < times[edge.from].endUs - tolerance)
        return fmt::format("node {} starts at {} us, before node {} has ended at {} us", edge.to,
                           times[edge.to].startUs, edge.from, times[edge.from].endUs);
    if (std::abs(prediction.totalUs - end) > tolerance)
      return fmt::format("the step takes {} us, but the last node ends at {} us", prediction.totalUs, end);
    if (prediction.peakBytes > step.budgetBytes)
      return fmt::format("at most {} bytes are in use of a budget of {}", prediction.peakBytes, step.budgetBytes);
    return std::nullopt;
  }

  const Description captured_;
  const std::uint64_t seed_;
  const PlanOptions options_;
  const Reference reference_;
};

void report(std::uint64_t seed, const Description &captured, const Failure &failure) {
  const auto failureOf = [&](const Description &candidate) {
    Tally ignored;
    return Property(candidate, seed).run(ignored);
  };
  const Description small = shrink(captured, [&](const Description &candidate) {
    const std::optional<Failure> other = failureOf(candidate);
    return other && other->place == failure.place;
  });
  const PlanOptions options = optionsFor(seed, small);
  fmt::print("seed {}: {}\nbudget {} bytes, up {}, down {}, both {} bytes/s\nthe captured step:\n{}", seed,
             failure.place, options.budgetBytes, options.machine.upBytesPerSecond, options.machine.downBytesPerSecond,
             options.machine.bothBytesPerSecond, toText(small));
  if (const std::optional<Failure> last = failureOf(small))
    fmt::print("{}: {}\n", last->place, last->message);
}

/// So many steps say whether enough of them are of each kind.
constexpr std::uint64_t leastThatTell = 500;

int runAll(std::uint64_t firstSeed, std::uint64_t count) {
  Tally tally;
  for (std::uint64_t seed = firstSeed; seed < firstSeed + count; ++seed) {
    const Description captured = repeatingStep(seed);
    ++tally.steps;
    if (const std::optional<Failure> failure = Property(captured, seed).run(tally)) {
      report(seed, captured, *failure);
      return EXIT_FAILURE;
    }
  }
  fmt::print("{} random steps from seed {}: {} sequences with repetitions; {} planned, {} of them with transfers if no "
             "node may run again, {} with repetitions\n",
             tally.steps, firstSeed, tally.sequences, tally.planned, tally.moving, tally.repeating);
  const bool isWorthIt = tally.steps == count && tally.planned * 10 >= count * 8 && tally.sequences * 2 >= count &&
                         tally.repeating * 8 >= tally.moving && tally.moving * 4 >= count;
  if (count < leastThatTell) // a share of what sanitizers make slow
    return tally.steps == count ? EXIT_SUCCESS : EXIT_FAILURE;
  if (!isWorthIt)
    fmt::print("too few of them say anything\n");
  return isWorthIt ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace
} // namespace pumpgraph::test

int main(int argumentCount, char **arguments) {
  return pumpgraph::test::runSeeds(argumentCount, arguments, pumpgraph::test::runAll);
}
