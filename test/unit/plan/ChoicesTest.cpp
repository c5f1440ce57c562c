// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/Choices.h"

#include "passes/plan/allocate/GivenBoundary.h"
#include "passes/plan/search/FindPlan.h"
#include "test/unit/plan/RegularStep.h"

#include <gtest/gtest.h>

#include <optional>

namespace pumpgraph {
namespace {

/// Choices are a value: whoever has it has the plan.
class ChoicesTest : public testing::Test {
protected:
  ChoicesTest()
      : step_(test::regularStep({.layers = 6})), timeline_(step_), order_(step_), frames_(timeline_.peakPages() / 2),
        given_(givenBoundary(step_, timeline_, nullptr, frames_)),
        input_{step_, timeline_, order_, machine_, frames_, given_}, evaluator_(input_, frames_ * step_.pageBytes) {}

  /// Nothing is chosen: what is live is away between steps, and pieces choose frames as they come.
  Choices byHand() const { return {{given_.states, {}, {}, given_.homes}, {}}; }

  Machine machine_;
  Description step_;
  Timeline timeline_;
  Order order_;
  std::uint64_t frames_;
  GivenBoundary given_;
  PlannerInput input_;
  Evaluator evaluator_;
};

// A search adds nothing of its own: the choices that it found make its plan.
TEST_F(ChoicesTest, OfASearchMakeItsPlan) {
  Workers workers(2);
  Shares shares(2, 1);
  const std::optional<Found> found = findPlan(input_, {evaluator_.budgetBytes(), nullptr, false}, workers, shares);
  ASSERT_TRUE(found);
  const Outcome again = evaluator_(found->inRows.choices);
  ASSERT_TRUE(again.evaluated);
  EXPECT_EQ(again.evaluated->schedule.totalUs, found->inRows.schedule.totalUs);
  test::expectSame(evaluator_.write(*again.evaluated), evaluator_.write(found->inRows));
}

TEST_F(ChoicesTest, AnyOtherMemberMakesOthers) {
  const Choices choices = byHand();
  std::vector<Choices> others(7, choices);
  others[0].start.boundary[PieceIndex{0}] = BoundaryState::Mirrored;
  others[1].start.leaves.push_back(0);
  others[2].start.first.push_back(PieceIndex{0});
  others[3].start.homes[PieceIndex{0}].push_back(0);
  others[4].start.looksFurther = true;
  others[5].finish.joinReach = 0;
  others[6].finish.rowBytes = 1;
  for (const Choices &other : others)
    EXPECT_NE(hashOf(other), hashOf(choices));
  EXPECT_EQ(hashOf(byHand()), hashOf(choices));
}

} // namespace
} // namespace pumpgraph
