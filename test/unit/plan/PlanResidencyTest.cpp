// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/PlanResidency.h"

#include "passes/analysis/Bound.h"
#include "passes/analysis/Order.h"
#include "passes/analysis/Prediction.h"
#include "passes/check/CheckResidency.h"
#include "passes/plan/allocate/FramePlanner.h"
#include "passes/plan/allocate/GivenBoundary.h"
#include "test/unit/analysis/SmallStep.h"
#include "test/unit/plan/PairwiseStep.h"
#include "test/unit/plan/RegularStep.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pumpgraph {
namespace {

using test::regularStep;
using test::RegularStepShape;
using test::smallMachine;
using test::smallPage;
using test::SmallStep;

PlanOptions pages(std::uint64_t count) {
  return {count * smallPage, smallMachine()};
}

/// Plans, and expects the checker to accept the plan.
PlannedStep planned(const Description &step, const PlanOptions &options) {
  tl::expected<PlannedStep, PlanError> plan = planResidency(step, options);
  EXPECT_TRUE(plan.has_value()) << (plan ? "" : plan.error().message);
  if (!plan)
    return {};
  for (const Violation &violation : checkResidency(plan->description))
    ADD_FAILURE() << violation.message;
  for (const Violation &violation : checkPreserves(step, plan->description))
    ADD_FAILURE() << violation.message;
  return std::move(*plan);
}

std::vector<std::string> moved(const Description &plan, NodeKind kind) {
  std::vector<std::string> names;
  for (const Node &node : plan.nodes)
    if (node.kind == kind)
      names.push_back(plan.buffers[node.buffer].name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

using Names = std::vector<std::string>;

TEST(PlanResidency, NothingIsAddedWhenEverythingFits) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4), w = small.live("w", 2);
  small.exclusive("x", 1);
  small.kernel("k0", 1, {small.write(a), small.read(w)});
  small.kernel("k1", 1, {small.read(a)});
  small.kernel("k2", 1, {small.write(b)});
  const PlannedStep plan = planned(small.step, pages(7));
  EXPECT_EQ(plan.stats.peakPagesBefore, 7u);
  EXPECT_EQ(plan.stats.framesUsed, 7u);
  EXPECT_EQ(plan.description.nodes.size(), small.step.nodes.size());
  EXPECT_EQ(plan.stats.hostBytes, 0u);
  const auto again = planResidency(plan.description, pages(5));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message, "the step is planned; it has to be captured");
}

/// A step, and a budget hardly above the need of its widest node.
std::pair<Description, PlanOptions> crowdedStep() {
  Description step = test::regularStep({.layers = 12, .activationPages = 48});
  const Timeline timeline(step);
  std::uint64_t widest = 0;
  for (NodeIndex node = 0; node < timeline.nodeCount(); ++node)
    widest = std::max(widest, timeline.workingSetPages(node));
  const PlanOptions options{widest * 12 / 10 * step.pageBytes, Machine()};
  return {std::move(step), options};
}

// Two searches side by side, whichever of them is done first.
TEST(PlanResidency, ACrowdedStepIsPlannedTheSameEveryTime) {
  const auto [step, options] = crowdedStep();
  const PlannedStep first = planned(step, options);
  EXPECT_GT(first.stats.upBytes, 0u);
  for (int i = 0; i < 5; ++i)
    test::expectSame(planned(step, options).description, first.description);
}

// What several processors try ahead counts only if nothing before it came to anything.
TEST(PlanResidency, HowManyProcessorsThereAreChangesNoPlan) {
  std::vector<std::pair<Description, PlanOptions>> steps = {crowdedStep()};
  for (const bool hasSideStream : {false, true}) {
    const Description step = test::regularStep({.layers = 16, .hasSideStream = hasSideStream});
    const std::uint64_t peakPages = planResidency(step, {0, Machine()})->stats.peakPagesBefore;
    for (const std::uint64_t percent : {75, 50, 30})
      steps.push_back({step, {peakPages * percent / 100 * step.pageBytes, Machine()}});
  }
  for (auto &[step, options] : steps) {
    options.processors = 1;
    const PlannedStep one = planned(step, options);
    EXPECT_GT(one.stats.upBytes, 0u);
    for (const unsigned processors : {6U, 12U, 64U}) {
      options.processors = processors;
      test::expectSame(planned(step, options).description, one.description);
    }
  }
}

// What the step makes anew, and keeps, has its frame only from then on.
TEST(PlanResidency, NothingIsAddedWhereAResultTakesTheFrameOfSomethingDead) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), kept = small.live("kept", 4);
  small.kernel("k0", 1, {small.write(a)});
  small.kernel("k1", 1, {small.write(kept)});
  const PlannedStep plan = planned(small.step, pages(4));
  EXPECT_EQ(plan.description.nodes.size(), small.step.nodes.size());
  EXPECT_EQ(plan.stats.hostBytes, 0u);
}

TEST(PlanResidency, OnePageLessThanThePeakAddsNodes) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4);
  small.kernel("k0", 1, {small.write(a)});
  small.kernel("k1", 1, {small.write(b)});
  small.kernel("k2", 1, {small.read(a)});
  EXPECT_EQ(planned(small.step, pages(8)).description.nodes.size(), 3u);
  const PlannedStep plan = planned(small.step, pages(7));
  EXPECT_EQ(plan.stats.downBytes, smallPage);
  EXPECT_EQ(plan.stats.upBytes, smallPage);
}

// In between the weight must go. With a good host copy it goes at once, and is saved while the last node runs.
TEST(PlanResidency, AMirroredWeightGivesWayWithoutACopy) {
  SmallStep small;
  const BufferIndex w = small.live("w", 4), a = small.local("a", 6), b = small.local("b", 1);
  small.kernel("use", 1, {small.read(w)});
  small.kernel("fill", 1, {small.write(a)});
  small.kernel("drain", 1, {small.read(a)});
  small.kernel("update", 1, {small.update(w)});
  small.kernel("long", 10, {small.write(b)});
  const PlannedStep plan = planned(small.step, pages(6));
  EXPECT_EQ(plan.description.buffers[w].mirrored, plan.description.buffers[w].resident);
  EXPECT_FALSE(plan.description.buffers[w].mirrored.empty());
}

// The link down has nothing to do while the forward pass begins. States that the optimizer writes last leave then, and
// are not saved after the last node: that made this step 8 % longer than the bound.
TEST(PlanResidency, WhatIsWrittenLastLeavesInTheNextStep) {
  SmallStep small;
  constexpr std::size_t layers = 6, statesPerLayer = 4;
  std::vector<BufferIndex> weights, activations;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    weights.push_back(small.live("weight", 2));
    activations.push_back(small.local("activation", 4));
    small.kernel("forward", 4, {small.read(weights[layer]), small.write(activations[layer])});
  }
  std::vector<BufferIndex> gradients(layers);
  for (std::size_t layer = layers; layer-- > 0;) {
    gradients[layer] = small.local("gradient", 2);
    small.kernel("backward", 8,
                 {small.read(weights[layer]), small.read(activations[layer]), small.write(gradients[layer])});
  }
  for (std::size_t layer = 0; layer < layers; ++layer) {
    std::vector<Access> accesses{small.update(weights[layer]), small.read(gradients[layer])};
    for (std::size_t i = 0; i < statesPerLayer; ++i)
      accesses.push_back(small.update(small.live("state", 2)));
    small.kernel("update", 1, std::move(accesses));
  }
  constexpr std::uint64_t budget = layers * 4 + 8;
  const PlannedStep plan = planned(small.step, pages(budget));
  const double boundUs = bound(small.step, budget * smallPage, smallMachine(), BoundKind::May).totalUs;
  EXPECT_LT(predict(plan.description, smallMachine()).totalUs, 1.02 * boundUs);
}

TEST(PlanResidency, NoBudgetMeansAsMuchAsTheStepNeeds) {
  SmallStep small;
  small.kernel("k0", 1, {small.write(small.local("a", 4))});
  EXPECT_EQ(planned(small.step, {0, smallMachine()}).description.budgetBytes, 4 * smallPage);
}

TEST(PlanResidency, TheBufferThatWaitsLongestLeaves) {
  SmallStep small;
  const BufferIndex cold = small.local("cold", 4), hot = small.local("hot", 4), middle = small.local("middle", 4);
  small.kernel("write cold", 1, {small.write(cold)});
  small.kernel("write hot", 1, {small.write(hot)});
  small.kernel("middle", 1, {small.write(middle)});
  small.kernel("read hot", 20, {small.read(hot)});
  small.kernel("read cold", 1, {small.read(cold)});
  const PlannedStep plan = planned(small.step, pages(8));
  EXPECT_EQ(moved(plan.description, NodeKind::Evict), Names{"cold"});
  EXPECT_EQ(moved(plan.description, NodeKind::Prefetch), Names{"cold"});
}

TEST(PlanResidency, AnEvictionWaitsForTheLastWriteOnly) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4);
  const NodeIndex write = small.kernel("write", 1, {small.write(a)});
  small.kernel("pause", 100, {});
  small.kernel("b", 1, {small.write(b)});
  small.kernel("read", 1, {small.read(a)});
  const PlannedStep plan = planned(small.step, pages(4));
  const Prediction prediction = predict(plan.description, smallMachine());
  for (NodeIndex n = 0; n < plan.description.nodes.size(); ++n)
    if (plan.description.nodes[n].kind == NodeKind::Evict) {
      EXPECT_DOUBLE_EQ(prediction.nodes[n].startUs, prediction.nodes[write].endUs);
    }
}

/// Whether the step's only eviction starts before `node` ends.
bool evictsBeside(const Description &plan, NodeIndex node) {
  const Prediction prediction = predict(plan, smallMachine());
  for (NodeIndex n = 0; n < plan.nodes.size(); ++n)
    if (plan.nodes[n].kind == NodeKind::Evict)
      for (NodeIndex other = 0; other < plan.nodes.size(); ++other)
        if (plan.nodes[other].captured == static_cast<std::int32_t>(node))
          return prediction.nodes[n].startUs < prediction.nodes[other].endUs;
  ADD_FAILURE() << "nothing is evicted";
  return false;
}

/// "a" is written, looked at for long, makes room for "b" and is read again.
struct LookedAtForLong {
  SmallStep small;
  BufferIndex a = small.local("a", 4);
  BufferIndex b = small.local("b", 4);
  NodeIndex write = small.kernel("write", 1, {small.write(a)});
  NodeIndex look = 0;

  explicit LookedAtForLong(bool mayWrite) {
    look = small.kernel("look", 100, {mayWrite ? small.update(a) : small.read(a)});
    small.kernel("b", 1, {small.write(b)});
    small.kernel("read", 1, {small.read(a)});
  }
};

TEST(PlanResidency, AnEvictionRunsBesideWhatReads) {
  const LookedAtForLong step(false);
  const PlannedStep plan = planned(step.small.step, pages(4));
  EXPECT_TRUE(evictsBeside(plan.description, step.look));
  EXPECT_DOUBLE_EQ(predict(plan.description, smallMachine()).totalUs, 1 + 100 + 1 + 4 + 1);
}

TEST(PlanResidency, AnEvictionWaitsForWhatMayWrite) {
  const LookedAtForLong step(true);
  const PlannedStep plan = planned(step.small.step, pages(4));
  EXPECT_FALSE(evictsBeside(plan.description, step.look));
  EXPECT_DOUBLE_EQ(predict(plan.description, smallMachine()).totalUs, 1 + 100 + 4 + 1 + 4 + 1);
}

// An eviction of a managed page takes it away from those who read it.
TEST(PlanResidency, InManagedMemoryAnEvictionWaitsForWhatReads) {
  const LookedAtForLong step(false);
  PlanOptions options = pages(4);
  options.backend = Backend::Managed;
  EXPECT_FALSE(evictsBeside(planned(step.small.step, options).description, step.look));
}

TEST(PlanResidency, APrefetchStartsWhenItsOwnFramesAreFree) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4);
  small.kernel("write", 1, {small.write(a)});
  small.kernel("b", 1, {small.write(b)});
  small.kernel("pause", 100, {});
  small.kernel("read", 1, {small.read(a)});
  const Prediction prediction = predict(planned(small.step, pages(4)).description, smallMachine());
  // 1 us, 4 us out, 1 us, then 4 us back in beside the pause.
  EXPECT_DOUBLE_EQ(prediction.totalUs, 107);
}

TEST(PlanResidency, AFrameThatIsStillBeingSavedIsNotTakenWhileAnotherIsFree) {
  SmallStep small;
  const BufferIndex weight = small.live("weight", 4), dead = small.local("dead", 4), next = small.local("next", 4);
  small.kernel("pause", 100, {});
  small.kernel("both", 1, {small.update(weight), small.write(dead)});
  small.kernel("read", 1, {small.read(dead)});
  small.kernel("update", 1, {small.update(weight)}); // its value leaves after this
  small.kernel("next", 100, {small.write(next)});
  small.kernel("large", 1, {small.write(small.local("large", 8))});
  EXPECT_DOUBLE_EQ(predict(planned(small.step, pages(8)).description, smallMachine()).totalUs, 204);
}

TEST(PlanResidency, DeadContentsAreNotCopied) {
  SmallStep small;
  for (const char *name : {"a", "b", "c"}) {
    const BufferIndex buffer = small.local(name, 4);
    small.kernel("write", 1, {small.write(buffer)});
    small.kernel("read", 1, {small.read(buffer)});
  }
  const PlannedStep plan = planned(small.step, pages(4));
  EXPECT_EQ(plan.stats.downBytes + plan.stats.upBytes, 0u);
}

TEST(PlanResidency, WhatWillBeOverwrittenIsDiscarded) {
  SmallStep small;
  const BufferIndex scratch = small.local("scratch", 4), b = small.local("b", 4);
  small.kernel("k0", 1, {small.write(scratch)});
  small.kernel("k1", 1, {small.write(b)});
  small.kernel("k2", 1, {small.write(scratch)});
  const PlannedStep plan = planned(small.step, pages(4));
  EXPECT_EQ(moved(plan.description, NodeKind::Discard), Names{"scratch"});
  EXPECT_EQ(plan.stats.downBytes + plan.stats.upBytes, 0u);
}

TEST(PlanResidency, AWeightThatIsOnlyReadNeverGoesDown) {
  SmallStep small;
  std::vector<BufferIndex> weights;
  for (const char *name : {"w0", "w1", "w2", "w3"})
    weights.push_back(small.live(name, 4));
  for (int pass = 0; pass < 2; ++pass)
    for (BufferIndex weight : weights)
      small.kernel("use", 30, {small.read(weight)});
  const PlannedStep plan = planned(small.step, pages(8));
  EXPECT_EQ(plan.stats.downBytes, 0u);
  EXPECT_GT(plan.stats.upBytes, 0u);
}

TEST(PlanResidency, AClosedCycleOfReadsKeepsAPartAndStreamsTheRest) {
  SmallStep small;
  for (int i = 0; i < 8; ++i)
    small.kernel("use", 4, {small.read(small.live("w", 4))});
  // 32 pages on 16. Reading all of them each time would be 32 pages up.
  EXPECT_LE(planned(small.step, pages(16)).stats.upBytes, 24 * smallPage);
}

TEST(PlanResidency, ParallelBranchesThatShareAFrameAreOrdered) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4);
  const NodeIndex fork = small.alone("fork", 1, {});
  const NodeIndex left = small.alone("left", 5, {small.write(a)}), right = small.alone("right", 5, {small.write(b)});
  small.edge(fork, left);
  small.edge(fork, right);
  const PlannedStep apart = planned(small.step, pages(8)), together = planned(small.step, pages(4));
  EXPECT_EQ(apart.description.edges.size(), 2u);
  EXPECT_EQ(together.description.edges.size(), 3u);
  EXPECT_EQ(together.description.nodes.size(), 3u);
}

TEST(PlanResidency, AProgrammaticEdgeOnAHandOverBecomesFull) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4);
  const NodeIndex first = small.alone("first", 1, {small.write(a)}),
                  second = small.alone("second", 1, {small.write(b)});
  small.edge(first, second, EdgeKind::Programmatic);
  EXPECT_EQ(planned(small.step, pages(8)).description.edges[0].kind, EdgeKind::Programmatic);
  EXPECT_EQ(planned(small.step, pages(4)).description.edges[0].kind, EdgeKind::Full);
}

TEST(PlanResidency, TwoBuffersOfOneNodeNeverShareAFrame) {
  EXPECT_EQ(planned(test::pairwiseStep(1).step, pages(3)).stats.framesUsed, 3u);
}

TEST(DraftPlan, MoreAtTheBoundaryThanThereAreFramesIsNoNodesFault) {
  SmallStep small;
  const BufferIndex a = small.live("a", 3), b = small.live("b", 3);
  small.kernel("a", 1, {small.read(a)});
  small.kernel("b", 1, {small.read(b)});
  const Machine machine = smallMachine();
  const Timeline timeline(small.step);
  const Order order(small.step);
  const GivenBoundary given = givenBoundary(small.step, timeline, nullptr, 4);
  const PlannerInput input{small.step, timeline, order, machine, 4, given};
  DraftStart start{given.states, {}, {}};
  EXPECT_TRUE(draftPlan(input, start));
  for (BoundaryState &state : start.boundary)
    state = BoundaryState::Resident;
  const tl::expected<Draft, Stuck> draft = draftPlan(input, start);
  ASSERT_FALSE(draft);
  EXPECT_EQ(draft.error().node, std::nullopt);
}

TEST(PlanResidency, ExclusiveBuffersBeyondTheBudgetAreAnErrorOfTheirOwn) {
  SmallStep small;
  small.exclusive("x", 5);
  small.kernel("k", 1, {});
  const auto plan = planResidency(small.step, pages(4));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message, "exclusive buffers need 4.9 KiB on the device at all times; the budget is 3.9 KiB");
}

// Nothing of a present buffer is in host memory between replays, though it leaves in between.
TEST(PlanResidency, APresentBufferLeavesAndIsBackInTheEnd) {
  SmallStep small;
  const BufferIndex input = small.live("input", 4), a = small.local("a", 4), b = small.local("b", 4);
  small.step.buffers[input].isPresent = true;
  small.kernel("first", 10, {small.read(input), small.write(a)});
  small.kernel("middle", 10, {small.read(a), small.write(b)});
  small.kernel("last", 10, {small.read(b)});
  const PlannedStep plan = planned(small.step, pages(8));
  EXPECT_EQ(plan.description.nodes.size(), 3U + 2U) << "an eviction and a prefetch";
  EXPECT_EQ(moved(plan.description, NodeKind::Evict), Names{"input"});
  EXPECT_EQ(moved(plan.description, NodeKind::Prefetch), Names{"input"});
  EXPECT_EQ(plan.description.buffers[input].resident, (std::vector<Range>{{0, small.step.buffers[input].size}}));
  EXPECT_TRUE(plan.description.buffers[input].mirrored.empty());
}

// Another step may have been planned before a buffer was declared present.
TEST(PlanResidency, APresentBufferThatOtherStepsKeepInHostMemoryIsRefused) {
  SmallStep small;
  const BufferIndex input = small.live("input", 2);
  small.step.buffers[input].isPresent = true;
  small.kernel("k", 1, {small.read(input)});
  Description boundary = small.step;
  boundary.nodes.clear();
  boundary.edges.clear();
  boundary.budgetBytes = 2 * smallPage;
  Buffer &given = boundary.buffers[input];
  given.frames = {0, 1};
  given.resident = {{0, smallPage}};
  PlanOptions options = pages(4);
  options.boundary = &boundary;
  const auto plan = planResidency(small.step, options);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message,
            "\"input\" has to be on the device between replays, and other steps keep some of it in host memory");
  given.resident = {{0, 2 * smallPage}};
  EXPECT_TRUE(planResidency(small.step, options));
}

TEST(PlanResidency, PresentBuffersBeyondTheBudgetAreAnErrorOfTheirOwn) {
  SmallStep small;
  small.exclusive("x", 3);
  small.step.buffers[small.live("input", 2)].isPresent = true;
  small.kernel("k", 1, {});
  const auto plan = planResidency(small.step, pages(4));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message,
            "exclusive and present buffers need 4.9 KiB on the device between replays; the budget is 3.9 KiB");
}

TEST(PlanResidency, HostMemoryThatDoesNotSufficeIsAnErrorThatSaysHowMuchIsMissing) {
  SmallStep small;
  const BufferIndex a = small.local("a", 4), b = small.local("b", 4);
  small.kernel("k0", 1, {small.write(a)});
  small.kernel("k1", 1, {small.write(b)});
  small.kernel("k2", 1, {small.read(a)});
  PlanOptions options = pages(4);
  options.machine.hostBytes = 3 * smallPage;
  const auto plan = planResidency(small.step, options);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message, "the plan needs 3.9 KiB of host memory; 2.9 KiB may be used, 1000 B are missing");
  options.machine.hostBytes = 4 * smallPage;
  EXPECT_EQ(planned(small.step, options).stats.hostBytes, 4 * smallPage);
}

// A report plans some budgets to find the one that is enough; a few percent do not matter there.
TEST(PlanResidency, AQuickPlanDoesNotChooseHomesAgain) {
  RegularStepShape shape;
  shape.layers = 12;
  shape.weightPages = 16;
  shape.workspacePages = 60; // in the way of what stays
  const Description step = regularStep(shape);
  PlanOptions options;
  options.budgetBytes = Timeline(step).peakPages() * 7 / 10 * step.pageBytes;
  const auto plannedUs = [&](bool isQuick) {
    options.isQuick = isQuick;
    return predict(planned(step, options).description, options.machine).totalUs;
  };
  EXPECT_LT(plannedUs(false), 0.99 * plannedUs(true));
}

TEST(PlanResidency, APlanIsNotPlannedAgain) {
  SmallStep small;
  small.residency(NodeKind::Evict, small.local("a", 1), 0, 1);
  EXPECT_FALSE(planResidency(small.step, pages(4)));
}

TEST(PlanResidency, AnyAmountOfMemoryMayBeOffered) {
  SmallStep small;
  small.kernel("k", 1, {small.write(small.local("a", 4))});
  EXPECT_EQ(planned(small.step, {UINT64_MAX, smallMachine()}).stats.framesUsed, 4u);
}

TEST(PlanResidency, AnEmptyStepIsAPlan) {
  EXPECT_EQ(planned(SmallStep().step, pages(1)).description.nodes.size(), 0u);
}

TEST(PlanResidency, AStepWithoutNodesMayKeepMoreThanThereIsRoomFor) {
  SmallStep small;
  small.live("w", 4);
  EXPECT_EQ(planned(small.step, pages(2)).description.nodes.size(), 0u);
}

TEST(PlanResidency, NoEdgeOfATransferIsImpliedByOthers) {
  const Description plan = planned(regularStep({}), {std::uint64_t{1} << 30, Machine()}).description;
  const Order order(plan);
  const std::vector<std::vector<NodeIndex>> predecessors = fullPredecessors(plan);
  const auto isTransfer = [&](NodeIndex n) { return movesUp(plan.nodes[n].kind) || movesDown(plan.nodes[n].kind); };
  for (NodeIndex n = 0; n < plan.nodes.size(); ++n)
    for (NodeIndex before : predecessors[n])
      if (isTransfer(n) || isTransfer(before)) {
        EXPECT_TRUE(std::none_of(predecessors[n].begin(), predecessors[n].end(),
                                 [&](NodeIndex other) {
                                   return plan.nodes[other].kind != NodeKind::Discard &&
                                          order.completesBefore(before, other);
                                 }))
            << before << " -> " << n;
      }
}

TEST(PlanResidency, TheSameInputGivesTheSamePlan) {
  const Description step = regularStep({});
  const PlanOptions options{std::uint64_t{1} << 30, Machine()};
  test::expectSame(planned(step, options).description, planned(step, options).description);
}

std::uint64_t largestTransfer(const RegularStepShape &shape) {
  const Description step = regularStep(shape);
  const std::uint64_t peakPages = planResidency(step, {0, Machine()})->stats.peakPagesBefore;
  std::uint64_t largest = 0;
  for (const Node &node : planned(step, {peakPages / 2 * step.pageBytes, Machine()}).description.nodes)
    if (movesUp(node.kind) || movesDown(node.kind))
      largest = std::max(largest, node.range.size);
  return largest;
}

// So many nodes that there is one search alone.
TEST(PlanResidency, LongNodesMoveLargerPiecesThanShortOnes) {
  RegularStepShape shape;
  shape.layers = 1700;
  shape.activationPages = 128;
  shape.kernelUs = 300;
  EXPECT_LE(largestTransfer(shape), std::uint64_t{34} << 20); // a piece and a partial page
  shape.kernelUs = 20'000;
  EXPECT_GT(largestTransfer(shape), std::uint64_t{64} << 20);
}

TEST(PlanResidency, StepsOfFewNodesTryLargerPiecesToo) {
  RegularStepShape shape;
  shape.activationPages = 128;
  shape.kernelUs = 300;
  EXPECT_GT(largestTransfer(shape), std::uint64_t{64} << 20);
}

/// Predicted time over planBound at a share of the peak.
double ratioAt(const RegularStepShape &shape, double share) {
  const Description step = regularStep(shape);
  const Machine machine;
  const std::uint64_t peakBytes = planResidency(step, {0, machine})->stats.peakPagesBefore * step.pageBytes;
  const std::uint64_t budgetBytes = static_cast<std::uint64_t>(share * static_cast<double>(peakBytes));
  const PlannedStep plan = planned(step, {budgetBytes, machine});
  const Prediction prediction = predict(plan.description, machine);
  EXPECT_LE(prediction.peakBytes, budgetBytes);
  return prediction.totalUs / bound(step, budgetBytes, machine, BoundKind::May).totalUs;
}

TEST(PlanResidency, RegularStepsComeCloseToTheBound) {
  RegularStepShape hidden; // compute hides the link
  hidden.kernelUs = 1000;
  EXPECT_LE(ratioAt(hidden, 0.5), 1.02);
  EXPECT_LE(ratioAt(hidden, 0.3), 1.05);
  RegularStepShape limited; // the link limits
  limited.kernelUs = 150;
  EXPECT_LE(ratioAt(limited, 0.5), 1.15);
  EXPECT_LE(ratioAt(limited, 0.3), 1.2);
  RegularStepShape weights; // weights and optimizer state rather than activations
  weights.weightPages = 16;
  weights.activationPages = 4;
  EXPECT_LE(ratioAt(weights, 0.5), 1.15);
  RegularStepShape streams; // weight gradients beside the main stream
  streams.hasSideStream = true;
  streams.programmaticEvery = 5;
  EXPECT_LE(ratioAt(streams, 0.5), 1.15);
}

} // namespace
} // namespace pumpgraph
