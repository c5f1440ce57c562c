// SPDX-License-Identifier: Apache-2.0
// One mistake in a correct plan: the checker must see it, unless it is proved that the mistake makes no difference.
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/PlanResidency.h"
#include "passes/plan/search/SplitCandidates.h"
#include "test/unit/check/Mutate.h"
#include "test/unit/check/RandomGraph.h"
#include "test/unit/check/RandomRepetitions.h"
#include "test/unit/check/SimplePlan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace pumpgraph::test {
namespace {

struct Tally {
  unsigned made = 0;
  unsigned rejected = 0;
  unsigned shownWrong = 0; ///< rejected, and the interpreter finds an order in which something goes wrong
  unsigned equivalent = 0; ///< accepted, and proved to be correct
};

class MutationTest : public testing::Test {
protected:
  enum Kind : unsigned { plain = 0, renamable = 1, repeatable = 2 };

  /// `planFor(captured, seed)` makes a correct plan, or none.
  template <typename PlanFor> void mutateAll(PlanFor planFor, unsigned kind = plain) {
    for (std::uint64_t seed = 0; seed < stepCount && !HasFatalFailure(); ++seed) {
      Description captured = randomStep(seed);
      if (captured.nodes.size() > mostNodes)
        continue;
      if ((kind & repeatable) != 0)
        captured = repeatableStep(captured, seed);
      if ((kind & renamable) != 0)
        makeRenamable(captured);
      const Reference reference(captured);
      const std::optional<Description> plan = planFor(captured, seed);
      if (!plan)
        continue;
      ++plans_;
      renamed_ |= plan->buffers.size() > captured.buffers.size();
      staying_ += pagesThatStay(*plan) > 0;
      repeating_ |= std::any_of(plan->nodes.begin(), plan->nodes.end(),
                                [](const Node &node) { return node.kind == NodeKind::Rematerialize; });
      lowered_ |=
          std::any_of(plan->nodes.begin(), plan->nodes.end(), [](const Node &node) { return isCopy(node.kind); });
      mutate(reference, *plan, seed);
    }
  }

  /// Checks every mutant of a correct plan.
  void mutate(const Reference &reference, const Description &plan, std::uint64_t seed) {
    ASSERT_TRUE(checkResidency(plan).empty()) << "seed " << seed << ": " << toText(plan);
    ASSERT_FALSE(doubtAbout(reference, plan)) << "seed " << seed << ": " << toText(plan);
    for (const Mutant &mutant : mutantsOf(plan)) {
      Tally &tally = tallies_[static_cast<std::size_t>(mutant.mutation)];
      ++tally.made;
      std::vector<Violation> violations = checkResidency(mutant.description, 1);
      if (violations.empty())
        violations = checkPreserves(reference.captured(), mutant.description, 1);
      const std::optional<std::string> wrong = Interpreter(reference, mutant.description).runAllDelays(seed);
      if (!violations.empty()) {
        ++tally.rejected;
        tally.shownWrong += wrong.has_value();
        continue;
      }
      const std::optional<std::string> doubt = wrong ? wrong : doubtAbout(reference, mutant.description);
      ASSERT_FALSE(doubt) << "seed " << seed << ": " << toText(mutant.mutation) << " (" << mutant.what
                          << ") is accepted, but " << *doubt << "\nthe plan\n"
                          << toText(plan) << "the mutant\n"
                          << toText(mutant.description);
      ++tally.equivalent;
    }
  }

  static constexpr std::uint64_t stepCount = 500;

  void printAndRequireKills(std::uint64_t leastPlans = stepCount / 3) const {
    EXPECT_GT(plans_, leastPlans);
    fmt::print("the mutants of {} plans\n", plans_);
    fmt::print("{:<34}{:>9}{:>10}{:>14}{:>12}\n", "mutation", "made", "rejected", "shown wrong", "equivalent");
    for (std::size_t i = 0; i < tallies_.size(); ++i) {
      const Tally &tally = tallies_[i];
      const auto mutation = static_cast<Mutation>(i);
      fmt::print("{:<34}{:>9}{:>10}{:>14}{:>12}\n", toText(mutation), tally.made, tally.rejected, tally.shownWrong,
                 tally.equivalent);
      if ((mutation == Mutation::MoveHostPlace && !lowered_) || (mutation == Mutation::RenameOperand && !renamed_) ||
          (isOfRepetition(mutation) && !repeating_))
        continue;
      EXPECT_GT(tally.rejected, 0U) << toText(mutation);
      EXPECT_EQ(tally.made, tally.rejected + tally.equivalent) << toText(mutation);
    }
  }

  void requireThatPagesStay() const {
    fmt::print("in {} of the plans some page stays where it is\n", staying_);
    EXPECT_GT(staying_ * 3, plans_);
  }

  void requireThatNothingMovesInVain() const {
    for (const Mutation mutation : {Mutation::DropTransfer, Mutation::ShortenTransfer})
      EXPECT_EQ(tallies_[static_cast<std::size_t>(mutation)].equivalent, 0U) << toText(mutation);
  }

private:
  static constexpr std::size_t mostNodes = 12; ///< a step has many mutants, and each is run many times
  std::array<Tally, mutationCount> tallies_{};
  unsigned plans_ = 0;
  unsigned staying_ = 0;
  bool lowered_ = false;
  bool renamed_ = false;
  bool repeating_ = false;
};

std::optional<Description> simplePlanFor(const Description &captured, std::uint64_t seed) {
  return simplePlan(captured, leastFrames(captured) + seed % 3, seed);
}

/// The same where buffers go on at other addresses, some pages in the frames in which they are.
std::optional<Description> stayingPlanFor(const Description &captured, std::uint64_t seed) {
  const Description step = withOtherAddresses(captured, seed);
  return step.buffers.size() == captured.buffers.size() ? std::nullopt : simplePlanFor(step, seed);
}

/// The same where nodes run again.
std::optional<Description> repeatingPlanFor(const Description &captured, std::uint64_t seed) {
  const RepeatingStep repeating = withRepetitions(captured, seed, false);
  return repeating.repetitions == 0 ? std::nullopt : simplePlanFor(repeating.step, seed);
}

/// Both.
std::optional<Description> repeatingStayingPlanFor(const Description &captured, std::uint64_t seed) {
  const RepeatingStep repeating = withRepetitions(captured, seed, false);
  return repeating.repetitions == 0 ? std::nullopt : stayingPlanFor(repeating.step, seed);
}

/// Under a tight budget, so that there is something to break, or one that some nodes exceed.
std::optional<Description> plannersPlanFor(const Description &captured, std::uint64_t seed) {
  PlanOptions options;
  const std::uint64_t frames = leastFrames(captured) + seed % 2;
  options.budgetBytes = (seed % 8 < 6 ? frames : std::max<std::uint64_t>(1, frames / 2)) * captured.pageBytes;
  const auto plan = planResidency(captured, options);
  if (!plan)
    return std::nullopt;
  return plan->description;
}

/// The same where every other buffer that can goes on at another address whenever it is idle.
std::optional<Description> renamingPlanFor(const Description &captured, std::uint64_t seed) {
  std::vector<Split> idle = idleTimes(captured, Timeline(captured), 0);
  std::erase_if(idle, [&](const Split &split) { return (split.buffer + seed) % 2 == 0; });
  return idle.empty() ? std::nullopt : plannersPlanFor(SplitStep(captured, idle).parts(), seed);
}

TEST_F(MutationTest, everyMutantOfASimplePlanIsRejectedOrEquivalent) {
  mutateAll(simplePlanFor);
  printAndRequireKills();
}

TEST_F(MutationTest, everyMutantOfALoweredSimplePlanIsRejectedOrEquivalent) {
  mutateAll([](const Description &captured, std::uint64_t seed) {
    const auto plan = simplePlanFor(captured, seed);
    return plan ? std::optional(simpleLowering(*plan)) : std::nullopt;
  });
  printAndRequireKills();
}

TEST_F(MutationTest, everyMutantOfAStayingPlanIsRejectedOrEquivalent) {
  mutateAll(stayingPlanFor, renamable);
  printAndRequireKills(stepCount / 4);
  requireThatPagesStay();
}

TEST_F(MutationTest, everyMutantOfALoweredStayingPlanIsRejectedOrEquivalent) {
  mutateAll(
      [](const Description &captured, std::uint64_t seed) {
        const auto plan = stayingPlanFor(captured, seed);
        return plan ? std::optional(simpleLowering(*plan)) : std::nullopt;
      },
      renamable);
  printAndRequireKills(stepCount / 4);
  requireThatPagesStay();
}

TEST_F(MutationTest, everyMutantOfARepeatingPlanIsRejectedOrEquivalent) {
  mutateAll(repeatingPlanFor, repeatable);
  printAndRequireKills(stepCount / 5);
}

TEST_F(MutationTest, everyMutantOfALoweredRepeatingPlanIsRejectedOrEquivalent) {
  mutateAll(
      [](const Description &captured, std::uint64_t seed) {
        const auto plan = repeatingPlanFor(captured, seed);
        return plan ? std::optional(simpleLowering(*plan)) : std::nullopt;
      },
      repeatable);
  printAndRequireKills(stepCount / 5);
}

TEST_F(MutationTest, everyMutantOfARepeatingStayingPlanIsRejectedOrEquivalent) {
  mutateAll(repeatingStayingPlanFor, repeatable | renamable);
  printAndRequireKills(stepCount / 5);
  requireThatPagesStay();
}

TEST_F(MutationTest, everyMutantOfAPlannersPlanIsRejectedOrEquivalent) {
  mutateAll(plannersPlanFor);
  printAndRequireKills();
  requireThatNothingMovesInVain();
}

TEST_F(MutationTest, everyMutantOfALoweredPlannersPlanIsRejectedOrEquivalent) {
  mutateAll([](const Description &captured, std::uint64_t seed) {
    const auto plan = plannersPlanFor(captured, seed);
    return plan ? std::optional(lowerVirtual(*plan)) : std::nullopt;
  });
  printAndRequireKills();
  requireThatNothingMovesInVain();
}

TEST_F(MutationTest, everyMutantOfARenamingPlanIsRejectedOrEquivalent) {
  mutateAll(renamingPlanFor, renamable);
  printAndRequireKills(stepCount / 10);
}

TEST_F(MutationTest, everyMutantOfALoweredRenamingPlanIsRejectedOrEquivalent) {
  mutateAll(
      [](const Description &captured, std::uint64_t seed) {
        const auto plan = renamingPlanFor(captured, seed);
        return plan ? std::optional(lowerVirtual(*plan)) : std::nullopt;
      },
      renamable);
  printAndRequireKills(stepCount / 10);
}

} // namespace
} // namespace pumpgraph::test
