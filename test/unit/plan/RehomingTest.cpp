// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/Rehoming.h"

#include "passes/check/CheckResidency.h"
#include "passes/plan/GivenBoundary.h"
#include "passes/plan/PlanWriter.h"
#include "test/unit/plan/RegularStep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace pumpgraph {
namespace {

constexpr std::uint64_t noEnd = 1'000'000'000;

/// A training step at half of what it needs, planned once with homes that were chosen without regard for time.
class RehomingTest : public testing::Test {
protected:
  RehomingTest()
      : step_(test::regularStep({.layers = 12})), timeline_(step_), order_(step_), frames_(timeline_.peakPages() / 2),
        given_(givenBoundary(step_, timeline_, nullptr, frames_)),
        input_{step_, timeline_, order_, machine_, frames_, given_}, search_(input_, frames_ * step_.pageBytes) {
    const std::optional<PieceFrames> homes = colourPieces(input_);
    tl::expected<Draft, Stuck> draft = draftPlan(input_, {given_.states, {}, {}}, Tuning(), &*homes);
    search_.tryDraft(std::move(*draft));
  }

  double plannedUs() const { return search_.best()->schedule.totalUs; }
  void chooseAgain(std::uint64_t effort = noEnd) { chooseHomesAgain(input_, search_, {}, Tuning(), effort, one_); }

  Machine machine_;
  Description step_;
  Timeline timeline_;
  Order order_;
  std::uint64_t frames_;
  GivenBoundary given_;
  PlannerInput input_;
  PlanSearch search_;
  const Processors one_{1, 1};
};

TEST_F(RehomingTest, MendsAPlanWithBadHomes) {
  const double before = plannedUs();
  chooseAgain();
  EXPECT_LT(plannedUs(), 0.95 * before);
  const Description plan = writePlan(input_, search_.best()->draft, search_.best()->schedule, search_.budgetBytes());
  const std::vector<Violation> violations = checkResidency(plan);
  EXPECT_TRUE(violations.empty()) << violations.front().message;
}

// Every other round chooses by price who is to be away when. The plan it begins with brings all from the host.
TEST_F(RehomingTest, ChoosesAnewWhatStaysBetweenSteps) {
  const auto isOnDevice = [](BoundaryState state) { return state != BoundaryState::Away; };
  const BoundaryStates &before = search_.best()->draft.boundary;
  ASSERT_TRUE(std::none_of(before.begin(), before.end(), isOnDevice));
  chooseAgain();
  const BoundaryStates &after = search_.best()->draft.boundary;
  EXPECT_TRUE(std::any_of(after.begin(), after.end(), isOnDevice));
}

TEST_F(RehomingTest, IsTheSameEveryTime) {
  PlanSearch again = search_;
  chooseAgain();
  chooseHomesAgain(input_, again, {}, Tuning(), noEnd, one_);
  EXPECT_EQ(again.best()->draft.frames, search_.best()->draft.frames);
  EXPECT_EQ(again.best()->schedule.totalUs, plannedUs());
}

// What several threads try ahead counts only if nothing before it came to anything.
TEST_F(RehomingTest, IsTheSameHoweverManyThreadsThereAre) {
  for (const std::uint64_t effort : {noEnd, std::uint64_t{3'000'000}}) {
    PlanSearch one = search_;
    chooseHomesAgain(input_, one, {}, Tuning(), effort, one_);
    for (const unsigned threads : {2U, 3U, 6U}) {
      PlanSearch several = search_;
      chooseHomesAgain(input_, several, {}, Tuning(), effort, Processors(threads, 1));
      EXPECT_EQ(several.best()->draft.frames, one.best()->draft.frames) << threads;
      EXPECT_EQ(several.best()->schedule.startUs, one.best()->schedule.startUs) << threads;
    }
  }
}

TEST(Processors, OfASearchThatIsDoneGoToTheOthers) {
  Processors eight(8, 3);
  EXPECT_EQ(eight.ofEach(), 2U);
  eight.searchIsDone();
  EXPECT_EQ(eight.ofEach(), 4U);
  eight.searchIsDone();
  EXPECT_EQ(eight.ofEach(), 6U) << "more would only be tried ahead of a success";
  EXPECT_EQ(Processors(2, 3).ofEach(), 1U);
}

TEST_F(RehomingTest, SpendsNoMoreThanItMay) {
  const double before = plannedUs();
  chooseAgain(0);
  EXPECT_EQ(plannedUs(), before);
}

// What other steps rely on stays where it is, also where it is in the way.
TEST_F(RehomingTest, LeavesGivenHomesAlone) {
  const PieceIndex first{0};
  given_.isGiven[first] = true;
  given_.homes[first] = search_.framesOf(first);
  const std::vector<std::int32_t> home = given_.homes[first];
  chooseAgain();
  EXPECT_EQ(search_.framesOf(first), home);
}

} // namespace
} // namespace pumpgraph
