// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Sweeps.h"

#include "test/unit/analysis/OptimizerStep.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

using test::OptimizerStep;
using test::smallPage;

constexpr std::uint64_t listBytes = OptimizerStep::listBytes;
constexpr std::uint32_t launches = OptimizerStep::launches;

class SweepsTest : public ::testing::Test {
protected:
  using Tensors = OptimizerStep::Tensors;

  std::size_t count() const { return findRepeatedSweeps(step_.step).size(); }

  OptimizerStep step_;
};

TEST_F(SweepsTest, AnEmptyStepHasNone) {
  EXPECT_TRUE(findRepeatedSweeps(Description()).empty());
}

TEST_F(SweepsTest, AdamWInOperationsWalksSixTimes) {
  step_.forwardAndBackward();
  const auto counting = static_cast<NodeIndex>(step_.step.nodes.size());
  step_.foreachAdamW();
  const std::vector<RepeatedSweeps> found = findRepeatedSweeps(step_.step);
  ASSERT_EQ(found.size(), 1u);
  const RepeatedSweeps &sweeps = found.front();
  EXPECT_EQ(sweeps.first, counting + 1);
  EXPECT_EQ(sweeps.last, step_.step.nodes.size() - 1);
  EXPECT_EQ(sweeps.sweeps, 6u);
  EXPECT_EQ(sweeps.nodes, 8 * launches + 1) << "and the power of the step counts";
  EXPECT_EQ(sweeps.stateBytes, 4 * listBytes + smallPage) << "weights, gradients, means, squares, the step counts";
  // Once more: weights, gradients, means; twice more: squares; the roots are no state, so all four of their touches.
  EXPECT_EQ(sweeps.touchedAgainBytes, 9 * listBytes);
  EXPECT_EQ(sweeps.saved, Traffic{}) << "there is no plan";
}

TEST_F(SweepsTest, AFusedAdamWWalksOnce) {
  step_.forwardAndBackward();
  step_.fusedAdamW();
  EXPECT_EQ(count(), 0u);
}

// A tensor too large for one launch is an operand of several, one after the other; and where a launch has fewer tensors
// than the one before, the rest of that one's pointers is still among its parameters.
TEST_F(SweepsTest, LaunchesOfOneOperationThatShareATensorAreNoWalks) {
  step_.forwardAndBackward();
  const Tensors means = step_.liveTensors("mean");
  constexpr std::size_t tensorsPerLaunch = 6;
  for (std::size_t first = 0; first < OptimizerStep::layers; first += tensorsPerLaunch) {
    Tensors used;
    for (std::size_t i = first > 0 ? first - tensorsPerLaunch / 2 : 0; i < first + tensorsPerLaunch; ++i)
      used.insert(used.end(), {step_.weights[i], step_.gradients[i], means[i]});
    step_.use("fused", used);
  }
  EXPECT_EQ(count(), 0u);
  for (Node &node : step_.step.nodes)
    node.name.clear(); // now they might be different operations
  EXPECT_EQ(count(), 1u);
}

// The second and the third operation are launches of one kernel.
TEST_F(SweepsTest, SgdWithMomentumWalksThreeTimes) {
  step_.forwardAndBackward();
  const Tensors momenta = step_.liveTensors("momentum");
  step_.forEach("mul", {momenta});
  step_.forEach("add", {momenta, step_.gradients});
  step_.forEach("add", {step_.weights, momenta});
  const std::vector<RepeatedSweeps> found = findRepeatedSweeps(step_.step);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.front().sweeps, 3u);
  EXPECT_EQ(found.front().nodes, 3 * launches);
  EXPECT_EQ(found.front().stateBytes, 3 * listBytes);
  EXPECT_EQ(found.front().touchedAgainBytes, 2 * listBytes);
}

TEST_F(SweepsTest, PlainSgdWalksOnce) {
  step_.forwardAndBackward();
  step_.forEach("add", {step_.weights, step_.gradients});
  EXPECT_EQ(count(), 0u);
}

// One parameter after the other: what an operation needs is what the one before it has just used.
TEST_F(SweepsTest, OperationsParameterByParameterAreNoWalks) {
  step_.forwardAndBackward();
  const Tensors momenta = step_.liveTensors("momentum");
  for (std::size_t i = 0; i < OptimizerStep::layers; ++i) {
    step_.use("mul", {momenta[i]});
    step_.use("add", {momenta[i], step_.gradients[i]});
    step_.use("step", {step_.weights[i], momenta[i]});
  }
  EXPECT_EQ(count(), 0u);
}

TEST_F(SweepsTest, WeightsUsedForwardAndBackwardAreNotWalkedOver) {
  step_.forwardAndBackward();
  EXPECT_EQ(count(), 0u);
}

TEST_F(SweepsTest, AccumulatedGradientsAreNotWalkedOver) {
  for (int batch = 0; batch < 4; ++batch)
    step_.forwardAndBackward();
  step_.fusedAdamW();
  EXPECT_EQ(count(), 0u);
}

// Their norm has to be known before the first update: no kernel could do both at once.
TEST_F(SweepsTest, ClippingBeforeAFusedOptimizerIsNotCounted) {
  step_.forwardAndBackward();
  step_.forEach("norm", {step_.gradients});
  step_.forEach("scale", {step_.gradients});
  step_.fusedAdamW();
  EXPECT_EQ(count(), 0u);
}

TEST_F(SweepsTest, AnAverageOfTheWeightsIsOneWalkMore) {
  step_.forwardAndBackward();
  step_.fusedAdamW();
  step_.forEach("average", {step_.weights, step_.liveTensors("average")});
  const std::vector<RepeatedSweeps> found = findRepeatedSweeps(step_.step);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.front().sweeps, 2u);
  EXPECT_EQ(found.front().touchedAgainBytes, listBytes);
}

TEST_F(SweepsTest, WalksWithAPassBetweenThemDoNotBelongTogether) {
  const Tensors momenta = step_.liveTensors("momentum");
  step_.forEach("mul", {momenta});
  step_.forwardAndBackward();
  step_.forEach("step", {step_.weights, momenta, step_.gradients});
  EXPECT_EQ(count(), 0u);
}

TEST_F(SweepsTest, AWalkOverAFewBuffersIsNotCounted) {
  const std::size_t few = RepeatedSweeps::leastBuffers - 1;
  const Tensors all(step_.weights.begin(), step_.weights.begin() + few);
  for (const char *name : {"mul", "add", "div"})
    step_.use(name, all);
  EXPECT_EQ(count(), 0u);
  const Tensors enough(step_.weights.begin(), step_.weights.begin() + few + 1);
  for (const char *name : {"mul", "add", "div"})
    step_.use(name, enough);
  EXPECT_EQ(count(), 1u);
}

TEST_F(SweepsTest, WalksOverLittleOfTheStateAreNotCounted) {
  step_.forEach("forward", {step_.weights});
  Tensors small;
  for (std::size_t i = 0; i < RepeatedSweeps::leastBuffers; ++i)
    small.push_back(step_.live("small", 1));
  for (const char *name : {"mul", "add", "div", "sub"})
    step_.use(name, small);
  EXPECT_EQ(count(), 0u);
}

TEST_F(SweepsTest, AQuarterOfTheStateHasToBeTouchedAgain) {
  const Tensors momenta = step_.liveTensors("momentum");
  const Tensors half(step_.weights.begin(), step_.weights.begin() + OptimizerStep::layers / 2);
  step_.forEach("fused", {step_.weights, momenta});
  step_.use("average", half);
  EXPECT_EQ(count(), 1u);
  step_.step.nodes.back().accesses.pop_back();
  EXPECT_EQ(count(), 0u);
}

// It would be no state, and a fused optimizer could do without: but this is one.
TEST_F(SweepsTest, ScratchMemoryDoesNotMakeOneWalkTwo) {
  step_.forEach("fused", {step_.weights, step_.localTensors("scratch")});
  EXPECT_EQ(count(), 0u);
}

// Exclusive buffers never move.
TEST_F(SweepsTest, OnlyPrivateBuffersCount) {
  step_.foreachAdamW();
  for (Buffer &buffer : step_.step.buffers)
    buffer.isPrivate = false;
  EXPECT_EQ(count(), 0u);
}

// Each walk over the momenta brings them in and out; the gradients are saved although nobody reads them again.
TEST_F(SweepsTest, OneWalkMovesEachPageOnceEachWayAtMost) {
  const Tensors momenta = step_.liveTensors("momentum");
  const auto all = [&](NodeKind kind, const Tensors &tensors) {
    for (const BufferIndex buffer : tensors)
      step_.residency(kind, buffer, 0, OptimizerStep::weightPages);
  };
  step_.use("make", step_.gradients);
  all(NodeKind::Evict, step_.gradients); // before the walks, so theirs only where it comes back
  step_.use("rest", {step_.local("rest", 1)});
  all(NodeKind::Prefetch, momenta);
  step_.use("mul", momenta);
  all(NodeKind::Evict, momenta);
  all(NodeKind::Prefetch, momenta);
  all(NodeKind::Prefetch, step_.gradients);
  Tensors both = momenta;
  both.insert(both.end(), step_.gradients.begin(), step_.gradients.end());
  step_.use("add", both);
  all(NodeKind::Evict, both);
  all(NodeKind::Prefetch, momenta);
  both = momenta;
  both.insert(both.end(), step_.weights.begin(), step_.weights.end());
  step_.use("step", both);
  all(NodeKind::Evict, both);
  const std::vector<RepeatedSweeps> found = findRepeatedSweeps(step_.step);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.front().sweeps, 3u);
  EXPECT_EQ(found.front().saved, (Traffic{2 * listBytes, 3 * listBytes}));
}

} // namespace
} // namespace pumpgraph
