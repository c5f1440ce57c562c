// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/Choices.h"

#include "passes/plan/allocate/GivenBoundary.h"
#include "passes/plan/search/FindPlan.h"
#include "test/unit/plan/ChoicesText.h"
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

TEST_F(ChoicesTest, MadeByHandPrintedAndReadBackAreTheSamePlan) {
  Choices choices = byHand();
  choices.start.first = {PieceIndex{3}, PieceIndex{1}};
  choices.start.slackWeight = 0.3;
  choices.finish = {.joinReach = 4, .deferrals = 1, .rowBytes = 1 << 20};
  const tl::expected<Choices, std::string> read = test::choicesOf(test::toText(choices));
  ASSERT_TRUE(read) << read.error();
  EXPECT_EQ(*read, choices);
  EXPECT_EQ(hashOf(*read), hashOf(choices));
  const Outcome one = evaluator_(choices), other = evaluator_(*read);
  ASSERT_TRUE(one.evaluated && other.evaluated);
  test::expectSame(evaluator_.write(*one.evaluated), evaluator_.write(*other.evaluated));
}

// A search adds nothing of its own: the choices that it found make its plan.
TEST_F(ChoicesTest, OfASearchMakeItsPlan) {
  Workers workers(2);
  Shares shares(2, 1);
  const std::optional<Found> found = findPlan(input_, {evaluator_.budgetBytes(), nullptr, false}, workers, shares);
  ASSERT_TRUE(found);
  const tl::expected<Choices, std::string> read = test::choicesOf(test::toText(found->inRows.choices));
  ASSERT_TRUE(read) << read.error();
  const Outcome again = evaluator_(*read);
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
  for (const Choices &other : others) {
    EXPECT_NE(other, choices);
    EXPECT_NE(hashOf(other), hashOf(choices));
    const tl::expected<Choices, std::string> read = test::choicesOf(test::toText(other));
    ASSERT_TRUE(read) << read.error();
    EXPECT_EQ(*read, other);
  }
}

TEST(Choices, WhatIsNoneIsRefusedByItsLine) {
  for (const char *text : {"boundary X", "leaves 2", "first -1", "homes 5-3", "homes 1,x", "start 1 2", "finish 0 0",
                           "others 1", "boundary 99999999999*R"}) {
    const tl::expected<Choices, std::string> read = test::choicesOf(text);
    ASSERT_FALSE(read) << text;
    EXPECT_NE(read.error().find(text), std::string::npos);
  }
}

TEST(Choices, RunsAreWrittenOnce) {
  Choices choices;
  choices.start.boundary = BoundaryStates(12, BoundaryState::Resident);
  choices.start.homes = PieceFrames(2);
  choices.start.homes[PieceIndex{1}] = {4, 5, 6, 9};
  const std::string text = test::toText(choices);
  EXPECT_NE(text.find("boundary 12*R\n"), std::string::npos) << text;
  EXPECT_NE(text.find("homes . 4-6,9\n"), std::string::npos) << text;
}

} // namespace
} // namespace pumpgraph
