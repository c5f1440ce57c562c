// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/Proposers.h"

#include "passes/check/CheckResidency.h"
#include "passes/plan/allocate/GivenBoundary.h"
#include "test/unit/plan/RegularStep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace pumpgraph {
namespace {

constexpr std::uint64_t noEnd = 1'000'000'000;

/// A training step at half of what it needs, planned once with homes that were chosen without regard for time.
class NeighbourhoodTest : public testing::Test {
protected:
  NeighbourhoodTest()
      : step_(test::regularStep({.layers = 12})), timeline_(step_), order_(step_), frames_(timeline_.peakPages() / 2),
        given_(givenBoundary(step_, timeline_, nullptr, frames_)),
        input_{step_, timeline_, order_, machine_, frames_, given_}, evaluator_(input_, frames_ * step_.pageBytes) {}

  /// As evaluated, before anything chose again.
  Evaluated begun() const { return *evaluator_({{given_.states, {}, {}, *colourPieces(input_)}, {}}).evaluated; }

  /// The plan once pieces have chosen again, on so many threads.
  Evaluated chosenAgain(std::uint64_t effort = noEnd, unsigned threads = 1) const {
    Repairs repairs(input_, nullptr);
    Workers workers(threads);
    const Shares shares(threads, 1);
    Search search(evaluator_, repairs, workers, shares, effort);
    search.take("colouring", begun());
    proposeNeighbours(search);
    return search.best();
  }

  Machine machine_;
  Description step_;
  Timeline timeline_;
  Order order_;
  std::uint64_t frames_;
  GivenBoundary given_;
  PlannerInput input_;
  Evaluator evaluator_;
};

TEST_F(NeighbourhoodTest, MendsAPlanWithBadHomes) {
  const Evaluated after = chosenAgain();
  EXPECT_LT(after.schedule.totalUs, 0.95 * begun().schedule.totalUs);
  const std::vector<Violation> violations = checkResidency(evaluator_.write(after));
  EXPECT_TRUE(violations.empty()) << violations.front().message;
}

// Every other round chooses by price who is to be away when. The plan it begins with brings all from the host.
TEST_F(NeighbourhoodTest, ChoosesAnewWhatStaysBetweenSteps) {
  const auto isOnDevice = [](BoundaryState state) { return state != BoundaryState::Away; };
  const BoundaryStates before = begun().draft.boundary, after = chosenAgain().draft.boundary;
  ASSERT_TRUE(std::none_of(before.begin(), before.end(), isOnDevice));
  EXPECT_TRUE(std::any_of(after.begin(), after.end(), isOnDevice));
}

TEST_F(NeighbourhoodTest, IsTheSameEveryTime) {
  const Evaluated one = chosenAgain(), other = chosenAgain();
  EXPECT_EQ(hashOf(one.choices), hashOf(other.choices));
  EXPECT_EQ(one.draft.frames, other.draft.frames);
  EXPECT_EQ(one.schedule.totalUs, other.schedule.totalUs);
}

// What several threads try ahead counts only if nothing before it came to anything.
TEST_F(NeighbourhoodTest, IsTheSameHoweverManyThreadsThereAre) {
  for (const std::uint64_t effort : {noEnd, std::uint64_t{3'000'000}}) {
    const Evaluated one = chosenAgain(effort);
    for (const unsigned threads : {2U, 3U, 6U}) {
      const Evaluated several = chosenAgain(effort, threads);
      EXPECT_EQ(several.draft.frames, one.draft.frames) << threads;
      EXPECT_EQ(several.schedule.startUs, one.schedule.startUs) << threads;
    }
  }
}

TEST_F(NeighbourhoodTest, SpendsNoMoreThanItMay) {
  EXPECT_EQ(chosenAgain(0).schedule.totalUs, begun().schedule.totalUs);
}

// What other steps rely on stays where it is, also where it is in the way.
TEST_F(NeighbourhoodTest, LeavesGivenHomesAlone) {
  const PieceIndex first{0};
  const std::vector<std::int32_t> home = begun().framesOf(timeline_, first);
  given_.isGiven[first] = true;
  given_.homes[first] = home;
  EXPECT_EQ(chosenAgain().framesOf(timeline_, first), home);
}

} // namespace
} // namespace pumpgraph
