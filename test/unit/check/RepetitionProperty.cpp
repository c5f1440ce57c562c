// SPDX-License-Identifier: Apache-2.0
// Random steps in which nodes run again, through checker and interpreter: what the checker accepts is right, and what
// is built right is accepted.
//
//   check-repetition-property [FIRST_SEED [COUNT]]
//
// Prints how many steps it ran; the first step that fails is printed with its seed, made as small as possible.
#include "passes/check/CheckResidency.h"
#include "test/unit/check/Interpreter.h"
#include "test/unit/check/Random.h"
#include "test/unit/check/RandomGraph.h"
#include "test/unit/check/RandomRepetitions.h"
#include "test/unit/check/SimplePlan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

namespace pumpgraph::test {
namespace {

/// What the checker finds, by its words.
struct Finding {
  const char *kind;
  std::string_view words;
  std::uint64_t count = 0;
};

struct Tally {
  struct OfMistake {
    std::uint64_t made = 0;
    std::uint64_t rejected = 0;
    std::uint64_t shownWrong = 0; ///< rejected, and the interpreter finds another value
  };
  std::uint64_t steps = 0;
  std::uint64_t repeating = 0; ///< right ones with a repetition
  std::uint64_t chains = 0;    ///< of these, with several
  std::uint64_t planned = 0;   ///< in which memory has a limit as well
  std::uint64_t dropping = 0;  ///< of these, right ones in which the value that is made again was lost
  std::uint64_t elsewhere = 0; ///< with a limit, and buffers that go on at other addresses
  std::array<OfMistake, mistakeCount> mistakes{};
  std::array<Finding, 9> findings{{{"version", " needs of "},
                                   {"version at the end", "at the end of the step"},
                                   {"race", " race on "},
                                   {"lasting", "outlives the step"},
                                   {"not private", "is not private"},
                                   {"pure", "not known to be pure"},
                                   {"repeats", "has another name or other accesses"},
                                   {"edge", "has a programmatic edge"},
                                   {"aside", "has become aside"}}};
};

struct Failure {
  std::string place;
  std::string message;
};

class Property {
public:
  Property(const Description &captured, std::uint64_t seed)
      : repeating_(withRepetitions(captured, seed)), reference_(captured), seed_(seed) {}

  std::optional<Failure> run(Tally &tally) {
    Tally::OfMistake &ofMistake = tally.mistakes[static_cast<std::size_t>(repeating_.mistake)];
    ++ofMistake.made;
    const Description whole = withoutLimit(repeating_.step);
    const std::vector<Violation> violations = findingsOf(whole);
    for (const Violation &violation : violations)
      for (Finding &finding : tally.findings)
        finding.count += violation.message.find(finding.words) != std::string::npos;
    const std::optional<std::string> wrong = wrongIn(whole);
    ofMistake.rejected += !violations.empty();
    ofMistake.shownWrong += !violations.empty() && wrong;
    const bool isRight = repeating_.mistake == Mistake::None;
    tally.repeating += isRight && repeating_.repetitions > 0;
    tally.chains += isRight && repeating_.repetitions > 1;
    if (auto failure = judge("no limit", whole, violations, wrong, isRight))
      return failure;

    const auto plan = simplePlan(repeating_.step, leastFrames(repeating_.step) + seed_ % 4, seed_);
    tally.planned += plan.has_value();
    tally.dropping += plan && isRight && losesWhatIsMadeAgain(*plan);
    if (auto failure = judgePlan("plan", plan, violations.empty()))
      return failure;
    const Description moved = withOtherAddresses(repeating_.step, seed_);
    if (moved.buffers.size() == repeating_.step.buffers.size())
      return std::nullopt;
    const auto elsewhere = simplePlan(moved, leastFrames(moved) + seed_ % 4, seed_);
    tally.elsewhere += elsewhere.has_value();
    return judgePlan("plan with other addresses", elsewhere, violations.empty());
  }

private:
  std::vector<Violation> findingsOf(const Description &step) const {
    std::vector<Violation> violations = checkResidency(step, 64);
    const std::vector<Violation> others = checkPreserves(reference_.captured(), step);
    violations.insert(violations.end(), others.begin(), others.end());
    return violations;
  }

  std::optional<std::string> wrongIn(const Description &step) const {
    Interpreter interpreter(reference_, step);
    if (std::optional<std::string> wrong = interpreter.runRandom(seed_, 4))
      return wrong;
    return interpreter.runAllDelays(seed_);
  }

  std::optional<Failure> judge(const std::string &what, const Description &step,
                               const std::vector<Violation> &violations, const std::optional<std::string> &wrong,
                               bool mustBeAccepted) const {
    const auto fail = [&](const char *how, const std::string &message) {
      return Failure{what + " " + how,
                     fmt::format("mistake: {}; {}\n{}", toText(repeating_.mistake), message, toText(step))};
    };
    if (violations.empty() && wrong)
      return fail("is accepted, but is wrong", *wrong);
    if (!violations.empty() && mustBeAccepted)
      return fail("is right, but is not accepted", violations[0].message);
    return std::nullopt;
  }

  std::optional<Failure> judgePlan(const std::string &what, const std::optional<Description> &plan,
                                   bool mustBeAccepted) const {
    if (!plan)
      return std::nullopt; // its colouring is greedy
    if (auto failure = judge(what, *plan, findingsOf(*plan), wrongIn(*plan), mustBeAccepted))
      return failure;
    const Description lowered = simpleLowering(*plan);
    return judge("lowered " + what, lowered, findingsOf(lowered), wrongIn(lowered), mustBeAccepted);
  }

  /// Whether the last node that had a page of a repetition's results in its frame before the repetition was another's.
  static bool losesWhatIsMadeAgain(const Description &plan);

  RepeatingStep repeating_;
  Reference reference_;
  std::uint64_t seed_;
};

bool Property::losesWhatIsMadeAgain(const Description &plan) {
  using Page = std::pair<BufferIndex, std::uint64_t>;
  std::map<std::int32_t, Page> tenants;
  for (const Node &node : plan.nodes) {
    const auto take = [&](BufferIndex buffer, const Range &range, bool isOverwritten) {
      bool isLost = false;
      for (std::uint64_t page = range.offset / plan.pageBytes; page * plan.pageBytes < range.end(); ++page) {
        const std::int32_t frame = plan.buffers[buffer].frames[page];
        const auto [tenant, isFirst] = tenants.try_emplace(frame, buffer, page);
        isLost |= isOverwritten && !isFirst && tenant->second != Page(buffer, page);
        tenant->second = {buffer, page};
      }
      return isLost;
    };
    if (isAdded(node.kind)) {
      take(node.buffer, node.range, false);
      continue;
    }
    for (const Access &access : node.accesses)
      if (take(access.buffer, access.range, node.kind == NodeKind::Rematerialize && access.must == modeWrite))
        return true;
  }
  return false;
}

void report(std::uint64_t seed, const Description &captured, const Failure &failure) {
  const auto failsLikewise = [&](const Description &candidate) {
    Tally ignored;
    if (candidate.nodes.empty())
      return false;
    const std::optional<Failure> other = Property(candidate, seed).run(ignored);
    return other && other->place == failure.place;
  };
  const Description small = shrink(captured, failsLikewise);
  Tally ignored;
  fmt::print("seed {}: {}\nthe captured step:\n{}", seed, failure.place, toText(small));
  if (const std::optional<Failure> last = Property(small, seed).run(ignored))
    fmt::print("{}: {}\n", last->place, last->message);
}

/// So many steps say whether enough of them are of each kind.
constexpr std::uint64_t leastThatTell = 500;

/// Whether they are enough to mean something.
bool printAndJudge(const Tally &tally, std::uint64_t firstSeed, std::uint64_t count) {
  fmt::print(
      "{} random steps from seed {}: {} right ones repeat nodes, {} several; {} with a limit of memory, in {} of "
      "them what is made again has lost its frame; {} with other addresses\n",
      tally.steps, firstSeed, tally.repeating, tally.chains, tally.planned, tally.dropping, tally.elsewhere);
  fmt::print("{:<32}{:>9}{:>10}{:>14}\n", "mistake", "made", "rejected", "shown wrong");
  bool isWorthIt = tally.steps == count && tally.repeating * 5 >= count && tally.chains * 20 >= count &&
                   tally.planned * 2 >= count && tally.dropping * 50 >= count && tally.elsewhere * 10 >= count;
  const auto isOfForm = [](Mistake mistake) {
    return mistake == Mistake::NotPure || mistake == Mistake::AccessDropped || mistake == Mistake::AccessChanged ||
           mistake == Mistake::AsideGained || mistake == Mistake::AsideForgotten;
  };
  std::uint64_t rejected = 0, shownWrong = 0;
  for (std::size_t i = 0; i < mistakeCount; ++i) {
    const Tally::OfMistake &ofMistake = tally.mistakes[i];
    fmt::print("{:<32}{:>9}{:>10}{:>14}\n", toText(static_cast<Mistake>(i)), ofMistake.made, ofMistake.rejected,
               ofMistake.shownWrong);
    isWorthIt &= i == 0 || ofMistake.rejected >= count / 1000;
    if (isOfForm(static_cast<Mistake>(i)))
      continue; // which the interpreter knows nothing of
    rejected += ofMistake.rejected;
    shownWrong += ofMistake.shownWrong;
  }
  for (const Finding &finding : tally.findings) {
    fmt::print("{:<32}{:>9}\n", finding.kind, finding.count);
    isWorthIt &= finding.count >= count / 1000;
  }
  fmt::print("{} of {} steps that are rejected for order or values are shown to be wrong\n", shownWrong, rejected);
  isWorthIt &= shownWrong * 3 >= rejected;
  if (count < leastThatTell) // a share of what sanitizers make slow
    return tally.steps == count;
  if (!isWorthIt)
    fmt::print("too few of them say anything\n");
  return isWorthIt;
}

int runAll(std::uint64_t firstSeed, std::uint64_t count) {
  Tally tally;
  for (std::uint64_t seed = firstSeed; seed < firstSeed + count; ++seed) {
    Description captured = repeatableStep(randomStep(seed), seed);
    makeRenamable(captured);
    ++tally.steps;
    if (const std::optional<Failure> failure = Property(captured, seed).run(tally)) {
      report(seed, captured, *failure);
      return EXIT_FAILURE;
    }
  }
  return printAndJudge(tally, firstSeed, count) ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace
} // namespace pumpgraph::test

int main(int argumentCount, char **arguments) {
  return pumpgraph::test::runSeeds(argumentCount, arguments, pumpgraph::test::runAll);
}
