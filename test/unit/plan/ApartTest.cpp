// SPDX-License-Identifier: Apache-2.0
// Pages that have frames of their own because nodes of other steps use them together.
#include "passes/check/CheckResidency.h"
#include "passes/plan/PlanResidency.h"
#include "test/unit/analysis/SmallStep.h"
#include "test/unit/check/SharedSteps.h"
#include "test/unit/plan/RegularStep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace pumpgraph {
namespace {

using test::notApart;
using test::smallMachine;
using test::smallPage;
using test::SmallStep;

/// Layers that use a weight each, one after the other, as a forward pass does.
class Apart : public ::testing::Test {
protected:
  explicit Apart(std::size_t layers = 4, std::uint64_t pages = 2) {
    for (std::size_t layer = 0; layer < layers; ++layer)
      weights_.push_back(small_.live("weight", pages));
    for (const BufferIndex weight : weights_)
      small_.kernel("layer", 1, {small_.read(weight)});
  }

  BufferPart whole(BufferIndex buffer) const { return {buffer, {0, small_.step.buffers[buffer].size}}; }
  std::vector<BufferPart> wholes(const std::vector<std::size_t> &layers) const {
    std::vector<BufferPart> parts;
    for (const std::size_t layer : layers)
      parts.push_back(whole(weights_[layer]));
    return parts;
  }
  PlanOptions options(std::uint64_t frames, ApartPages apart) const {
    PlanOptions made{frames * smallPage, smallMachine()};
    made.apart = std::move(apart);
    return made;
  }
  /// A plan that is right, in which those pages are apart.
  tl::expected<PlannedStep, PlanError> plan(std::uint64_t frames, ApartPages apart) const {
    return planStep(small_.step, options(frames, std::move(apart)));
  }
  static tl::expected<PlannedStep, PlanError> planStep(const Description &step, const PlanOptions &options) {
    tl::expected<PlannedStep, PlanError> made = planResidency(step, options);
    if (!made)
      return made;
    for (const Violation &violation : checkResidency(made->description))
      ADD_FAILURE() << violation.message;
    for (const Violation &violation : checkPreserves(step, made->description))
      ADD_FAILURE() << violation.message;
    EXPECT_EQ(notApart(made->description, options.apart).value_or(""), "");
    return made;
  }

  SmallStep small_;
  std::vector<BufferIndex> weights_;
};

std::set<std::int32_t> framesOf(const Description &plan, const std::vector<BufferIndex> &buffers) {
  std::set<std::int32_t> frames;
  for (const BufferIndex buffer : buffers)
    frames.insert(plan.buffers[buffer].frames.begin(), plan.buffers[buffer].frames.end());
  return frames;
}

// Without the option they share, at the same budget: else the test says nothing.
TEST_F(Apart, PagesOfOneGroupShareNoFrame) {
  const auto sharing = plan(4, {});
  ASSERT_TRUE(sharing);
  const ApartPages groups = {wholes({0, 1}), wholes({1, 2}), wholes({2, 3}), wholes({3, 0})};
  EXPECT_NE(notApart(sharing->description, groups), std::nullopt);
  ASSERT_TRUE(plan(4, groups));
}

// Where none is on the device between replays, each is done with before the next one comes.
TEST_F(Apart, WhatIsNotUsedAnyMoreIsKeptApartToo) {
  for (BufferIndex weight : weights_) {
    small_.step.buffers[weight].liveIn = false; // overwritten, then saved
    small_.step.nodes[weight].accesses = {small_.write(weight)};
  }
  for (const std::uint64_t frames : {4, 5, 6})
    ASSERT_TRUE(plan(frames, {wholes({0, 2}), wholes({1, 3})})) << frames;
}

TEST_F(Apart, OnlyThePagesThatAreNamed) {
  const ApartPages groups = {
      {{weights_[0], {0, smallPage}}, {weights_[1], {smallPage, smallPage}}, whole(weights_[2])}};
  ASSERT_TRUE(plan(4, groups));
  EXPECT_FALSE(plan(3, groups));
}

// The budget for one group is a limit that is known at once, and said.
TEST_F(Apart, AGroupThatIsLargerThanTheBudgetIsAnError) {
  small_.exclusive("x", 1);
  ASSERT_TRUE(plan(7, {wholes({0, 1, 2})}));
  const auto planned = plan(6, {wholes({0, 1, 2})});
  ASSERT_FALSE(planned);
  EXPECT_EQ(planned.error().message, "what a node of another step uses at once needs 6.8 KiB in frames of its own; "
                                     "the budget is 5.9 KiB");
}

// Two by two, all of them are apart. What copies touch cannot be in host memory instead.
TEST_F(Apart, GroupsThatDoNotFitTogetherAreAnError) {
  const ApartPages pairs = {wholes({0, 1}), wholes({0, 2}), wholes({1, 2})};
  for (Node &node : small_.step.nodes)
    node.kind = NodeKind::Memcpy;
  ASSERT_TRUE(plan(6, pairs));
  EXPECT_FALSE(plan(5, pairs));
}

class ApartRing : public Apart {
protected:
  ApartRing() : Apart(5, 1) {}
};

// No frame is left for the fifth unless one of the others gives way: three frames suffice, two do not.
TEST_F(ApartRing, FindsFramesForARing) {
  for (Node &node : small_.step.nodes)
    node.kind = NodeKind::Memcpy;
  const ApartPages ring = {wholes({0, 1}), wholes({1, 2}), wholes({2, 3}), wholes({3, 4}), wholes({4, 0})};
  ASSERT_TRUE(plan(3, ring));
  EXPECT_FALSE(plan(2, ring));
}

// No transfers follow from it, and no budget means enough.
TEST_F(Apart, NothingIsAddedWhereEverythingFits) {
  const BufferIndex first = small_.local("first", 3), second = small_.local("second", 3);
  small_.kernel("k", 1, {small_.write(first)});
  small_.kernel("l", 1, {small_.write(second)});
  for (const std::uint64_t frames : {0, 14, 20}) {
    const auto planned = plan(frames, {{whole(first), whole(second)}});
    ASSERT_TRUE(planned);
    EXPECT_EQ(planned->description.nodes.size(), small_.step.nodes.size());
    EXPECT_EQ(framesOf(planned->description, {first, second}).size(), 6u);
  }
  // The peak has room for one of them only.
  const auto planned = plan(11, {{whole(first), whole(second)}});
  ASSERT_TRUE(planned);
  EXPECT_EQ(framesOf(planned->description, {first, second}).size(), 6u);
}

// What is not this step's business: exclusive buffers, nothing at all, the same page twice.
TEST_F(Apart, NeedsNothingOfPagesThatAreApartAnyway) {
  const BufferIndex exclusive = small_.exclusive("x", 1);
  const ApartPages groups = {
      {}, {whole(exclusive)}, {whole(weights_[0]), whole(weights_[0])}, {{weights_[1], {500, 0}}}};
  ASSERT_TRUE(plan(3, groups));
}

// Drawn groups of buffers and of parts of them, at budgets that just have room and at larger ones.
TEST(ApartDrawn, PlansAreRightAndTheSameEveryTime) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t count) { return random() % count; };
  int planned = 0;
  for (int round = 0; round < 12; ++round) {
    const Description step = test::regularStep({.layers = 6, .activationPages = 12, .hasSideStream = round % 2 == 1});
    ApartPages apart;
    for (std::size_t group = 0; group < 6; ++group) {
      std::vector<BufferPart> &parts = apart.emplace_back();
      for (std::size_t part = 0; part < 4; ++part) {
        const auto buffer = static_cast<BufferIndex>(below(step.buffers.size()));
        const std::uint64_t pages = step.pageCount(buffer), first = below(pages);
        parts.push_back({buffer, {first * step.pageBytes, (1 + below(pages - first)) * step.pageBytes}});
      }
    }
    const std::uint64_t peak = planResidency(step, {0, Machine()})->stats.peakPagesBefore;
    for (const std::uint64_t percent : {100, 60, 40}) {
      PlanOptions options{peak * percent / 100 * step.pageBytes, Machine()};
      options.apart = apart;
      options.processors = 1;
      const auto one = planResidency(step, options);
      if (!one)
        continue;
      ++planned;
      EXPECT_EQ(notApart(one->description, apart).value_or(""), "") << round << ", " << percent << " %";
      const std::vector<Violation> violations = checkResidency(one->description, 1);
      EXPECT_TRUE(violations.empty()) << violations.front().message;
      options.processors = 12;
      const auto other = planResidency(step, options);
      ASSERT_TRUE(other);
      EXPECT_EQ(other->description.edges, one->description.edges);
      for (BufferIndex buffer = 0; buffer < step.buffers.size(); ++buffer)
        EXPECT_EQ(other->description.buffers[buffer].frames, one->description.buffers[buffer].frames);
    }
  }
  EXPECT_GE(planned, 24);
}

} // namespace
} // namespace pumpgraph
