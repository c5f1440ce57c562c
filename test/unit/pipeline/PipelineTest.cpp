// SPDX-License-Identifier: Apache-2.0
// The whole pipeline: planner, lowering, checker, prediction, bounds.
#include "TrainingStep.h"
#include "passes/analysis/RequiredTraffic.h"
#include "passes/analysis/Sweeps.h"
#include "passes/lower/PredictManaged.h"
#include "passes/pipeline/Budgets.h"
#include "passes/pipeline/Compile.h"
#include "test/unit/analysis/OptimizerStep.h"
#include "test/unit/analysis/SmallStep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pumpgraph {

constexpr int layers = 12;

static CompileOptions budgetOf(std::uint64_t bytes) {
  CompileOptions options;
  options.plan.budgetBytes = bytes;
  return options;
}

TEST(Pipeline, HalfTheMemoryIsPlannedAndChecked) {
  const Description step = test::trainingStep(layers);
  const std::uint64_t peak = *peakBytes(step, Machine{});
  const tl::expected<Compiled, PlanError> compiled = compile(step, budgetOf(peak / 2));
  ASSERT_TRUE(compiled) << compiled.error().message;
  EXPECT_TRUE(compiled->checked()) << compiled->violations.front().message;
  EXPECT_EQ(compiled->peakBytesBefore(), peak);
  EXPECT_LE(compiled->prediction.peakBytes, peak / 2);
  EXPECT_GT(compiled->prediction.upBytes, 0u);
  EXPECT_GE(compiled->prediction.totalUs, compiled->planBound.totalUs * (1 - 1e-9));
  EXPECT_GE(compiled->planBound.totalUs, compiled->bound.totalUs * (1 - 1e-9));
  EXPECT_GE(compiled->bound.totalUs, compiled->inMemory.totalUs * (1 - 1e-9));
}

TEST(Pipeline, EnoughMemoryAddsNothing) {
  const Description step = test::trainingStep(layers);
  const tl::expected<Compiled, PlanError> compiled = compile(step, CompileOptions{});
  ASSERT_TRUE(compiled) << compiled.error().message;
  EXPECT_EQ(compiled->lowered.nodes.size(), step.nodes.size());
}

TEST(Pipeline, BelowTheSmallestBudgetOperandsAreHosted) {
  const Description step = test::trainingStep(layers);
  const tl::expected<Compiled, PlanError> compiled = compile(step, budgetOf(smallestBudget(step) / 2));
  ASSERT_TRUE(compiled) << compiled.error().message;
  EXPECT_TRUE(compiled->checked()) << compiled->violations.front().message;
  EXPECT_GT(compiled->hostedBytes(), 0u);
  EXPECT_GE(compiled->prediction.totalUs, compiled->planBound.totalUs * (1 - 1e-9));
  EXPECT_GE(compiled->planBound.totalUs, compiled->bound.totalUs * (1 - 1e-9));
}

TEST(Pipeline, TooLittleMemoryNamesTheNode) {
  const Description step = test::trainingStep(layers);
  CompileOptions options = budgetOf(smallestBudget(step) - step.pageBytes);
  options.plan.machine.hostBytes = step.pageBytes;
  const tl::expected<Compiled, PlanError> compiled = compile(step, options);
  ASSERT_FALSE(compiled);
  ASSERT_TRUE(compiled.error().node);
  EXPECT_NE(compiled.error().message.find(step.nodes[*compiled.error().node].name), std::string::npos)
      << compiled.error().message;
}

TEST(Pipeline, MalformedStepsAreRefused) {
  Description step = test::trainingStep(1);
  step.edges.push_back({5, 2, EdgeKind::Full});
  const tl::expected<Compiled, PlanError> compiled = compile(step, CompileOptions{});
  ASSERT_FALSE(compiled);
  EXPECT_NE(compiled.error().message.find("train-1-layers"), std::string::npos) << compiled.error().message;
}

TEST(Pipeline, UnknownCostsAreEstimated) {
  Description step = test::trainingStep(2);
  for (Node &node : step.nodes)
    node.costUs = std::numeric_limits<double>::quiet_NaN();
  const tl::expected<Compiled, PlanError> compiled = compile(step, CompileOptions{});
  ASSERT_TRUE(compiled) << compiled.error().message;
  EXPECT_GT(compiled->inMemory.totalUs, 0);
}

TEST(Pipeline, TheSmallestBudgetIsTheLargestNode) {
  const Description step = test::trainingStep(layers);
  constexpr std::uint64_t mebi = std::uint64_t{1} << 20;
  // layer_norm_backward: two hidden buffers of 192 MiB and a gradient of 96.
  EXPECT_EQ(smallestBudget(step), (2 * 192 + 96) * mebi);
}

TEST(Sweep, RunsFromTheSmallestBudgetToThePeak) {
  const Description step = test::trainingStep(layers);
  const std::vector<SweepPoint> points = sweep(step, CompileOptions{}, 7);
  ASSERT_EQ(points.size(), 7u);
  EXPECT_EQ(points.front().budgetBytes, smallestBudget(step));
  EXPECT_EQ(points.back().budgetBytes, *peakBytes(step, Machine{}));
  EXPECT_TRUE(points.back().plannable);
  EXPECT_EQ(points.back().upBytes, 0u);
  EXPECT_TRUE(std::is_sorted(points.begin(), points.end(),
                             [](const SweepPoint &a, const SweepPoint &b) { return a.budgetBytes < b.budgetBytes; }));
  for (const SweepPoint &point : points) {
    EXPECT_TRUE(point.plannable || !point.reason.empty());
    EXPECT_LE(point.peakBytes, point.budgetBytes);
    EXPECT_GE(point.predictedUs, point.planBoundUs * (1 - 1e-9));
  }
}

TEST(Sweep, PlansNoBudgetTwice) {
  Description step = test::trainingStep(1);
  step.nodes.resize(1); // one kernel that writes one buffer: it needs what it touches, neither more nor less
  step.edges.clear();
  for (Buffer &buffer : step.buffers)
    buffer.liveIn = buffer.liveOut = false;
  const std::vector<SweepPoint> points = sweep(step, CompileOptions{}, 24);
  ASSERT_EQ(points.size(), 1u);
  EXPECT_TRUE(points.front().plannable) << points.front().reason;
}

TEST(Sweep, IsTheSameEveryTime) {
  const Description step = test::trainingStep(4);
  const std::vector<SweepPoint> first = sweep(step, CompileOptions{}, 5);
  const std::vector<SweepPoint> second = sweep(step, CompileOptions{}, 5);
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i)
    EXPECT_EQ(first[i].predictedUs, second[i].predictedUs);
}

// What a fused optimizer is said to save, beside what one does save: never more, and not by far less where it matters.
TEST(RepeatedSweeps, SaveNoMoreThanAFusedOptimizerDoes) {
  test::OptimizerStep separate, fused;
  for (test::OptimizerStep *step : {&separate, &fused})
    step->forwardAndBackward();
  separate.foreachAdamW();
  fused.fusedAdamW();
  CompileOptions options;
  options.plan.machine = test::smallMachine();
  for (const std::uint64_t percent : {30, 50, 70, 90}) {
    options.plan.budgetBytes = 4 * test::OptimizerStep::listBytes * percent / 100;
    const tl::expected<Compiled, PlanError> many = compile(separate.step, options);
    const tl::expected<Compiled, PlanError> one = compile(fused.step, options);
    ASSERT_TRUE(many && one) << percent;
    const std::vector<RepeatedSweeps> found = findRepeatedSweeps(many->lowered);
    ASSERT_EQ(found.size(), 1u) << percent;
    EXPECT_TRUE(findRepeatedSweeps(one->lowered).empty()) << percent;
    const std::uint64_t said = found.front().saved.total();
    const std::uint64_t saved = movedTraffic(many->lowered).total() - movedTraffic(one->lowered).total();
    EXPECT_LE(said, saved) << percent;
    EXPECT_TRUE(percent > 50 || said > saved / 2) << percent << " %: " << said << " of " << saved;
  }
}

// The budget it names has to do what it says, and one that is clearly smaller must not.
TEST(FindEnough, NamesABudgetThatRunsAtInMemorySpeed) {
  const Description step = test::trainingStep(layers);
  const std::uint64_t smallest = smallestBudget(step);
  tl::expected<Compiled, PlanError> compiled = compile(step, budgetOf(smallest * 5 / 4));
  ASSERT_TRUE(compiled) << compiled.error().message;
  ASSERT_FALSE(runsAtInMemorySpeed(*compiled));
  const std::optional<std::uint64_t> enoughBytes = findEnough(*compiled);
  ASSERT_TRUE(enoughBytes);
  EXPECT_GT(*enoughBytes, compiled->budgetBytes());
  const tl::expected<Compiled, PlanError> there = compile(step, budgetOf(*enoughBytes));
  ASSERT_TRUE(there) << there.error().message;
  EXPECT_TRUE(runsAtInMemorySpeed(*there));
}

TEST(FindEnough, SaysNothingWhereNothingIsMissing) {
  tl::expected<Compiled, PlanError> compiled = compile(test::trainingStep(4), CompileOptions{});
  ASSERT_TRUE(compiled) << compiled.error().message;
  EXPECT_FALSE(findEnough(*compiled));
}

// ---- managed memory: the steps of runtime_smoke, whose kernels take next to nothing ---------------------------------

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

static Access accessTo(const Description &step, BufferIndex buffer, Mode mode) {
  return {buffer, {0, step.buffers[buffer].size}, mode, mode};
}

/// Weights that are only read, one after another.
static Description streamingStep() {
  test::SmallStep small;
  small.step.pageBytes = 2 * mebibyte;
  const BufferIndex loss = test::addBuffer(small.step, "loss", 4, false, true);
  for (int layer = 0; layer < 16; ++layer) {
    const BufferIndex weight = test::addBuffer(small.step, "weight", 64 * mebibyte, true, true);
    small.kernel("reads", 20, {accessTo(small.step, weight, modeRead), accessTo(small.step, loss, modeReadWrite)});
  }
  return std::move(small.step);
}

/// A chain of layers, forward and backward, whose weights change with each step.
static Description chainOfLayers(std::size_t layerCount = 12, std::uint64_t times = 1) {
  const std::uint64_t valueBytes = times * 24 * mebibyte, weightBytes = times * 8 * mebibyte;
  test::SmallStep small;
  Description &step = small.step;
  step.pageBytes = 2 * mebibyte;
  const BufferIndex loss = test::addBuffer(step, "loss", 4, false, true);
  std::vector<BufferIndex> weights, values = {test::addBuffer(step, "input", valueBytes, false, true)};
  for (std::size_t layer = 0; layer < layerCount; ++layer) {
    weights.push_back(test::addBuffer(step, "weight", weightBytes, true, true));
    const BufferIndex value = test::addBuffer(step, "activation", valueBytes, true, false);
    small.kernel("forward", 20,
                 {accessTo(step, values.back(), modeRead), accessTo(step, weights.back(), modeRead),
                  accessTo(step, value, modeWrite)});
    values.push_back(value);
  }
  BufferIndex gradient = values.back();
  small.kernel("loss", 20, {accessTo(step, gradient, modeRead), accessTo(step, loss, modeReadWrite)});
  for (std::size_t layer = layerCount; layer-- > 0;) {
    const BufferIndex next = test::addBuffer(step, "gradient", valueBytes, true, false);
    small.kernel(
        "backward", 20,
        {accessTo(step, gradient, modeRead), accessTo(step, values[layer], modeRead), accessTo(step, next, modeWrite)});
    small.kernel("update", 20, {accessTo(step, next, modeRead), accessTo(step, weights[layer], modeReadWrite)});
    gradient = next;
  }
  return std::move(step);
}

/// The link of one H200 on a middling day.
static CompileOptions onManagedMemory(std::uint64_t budgetBytes) {
  CompileOptions options = budgetOf(budgetBytes);
  options.plan.backend = Backend::Managed;
  options.plan.machine.upBytesPerSecond = 50e9;
  options.plan.machine.downBytesPerSecond = 38e9;
  options.plan.machine.bothBytesPerSecond = 79e9;
  options.plan.machine.copyOverheadUs = 210;
  options.plan.machine.downAtOnce = 4;
  options.plan.machine.bestUpBytesPerSecond = 51.5e9;
  options.plan.machine.bestDownBytesPerSecond = 40e9;
  return options;
}

/// The same, with what a session measures of each kind of operation in place of one overhead for all.
static CompileOptions onMeasuredManagedMemory(std::uint64_t budgetBytes) {
  CompileOptions options = onManagedMemory(budgetBytes);
  options.plan.machine.copyOverheadUs = 70;
  options.plan.machine.downOverheadUs = 200;
  options.plan.machine.requestUs = 50;
  options.plan.machine.emptyBytesPerSecond = 390e9;
  return options;
}

static tl::expected<Compiled, PlanError> compileChecked(const Description &step, const CompileOptions &options) {
  tl::expected<Compiled, PlanError> compiled = compile(step, options);
  if (!compiled)
    ADD_FAILURE() << compiled.error().message;
  else if (!compiled->checked())
    ADD_FAILURE() << compiled->violations.front().message;
  else
    EXPECT_GE(compiled->prediction.totalUs, compiled->planBound.totalUs);
  return compiled;
}

/// Predicted over the managed bound. Prints a row like those of docs/results/managed.md.
static double overBound(const char *name, const Description &step, const CompileOptions &options) {
  CompileOptions steady = options, free = options;
  steady.plan.machine.bestUpBytesPerSecond = steady.plan.machine.bestDownBytesPerSecond = 0;
  free.plan.machine.copyOverheadUs = free.plan.machine.requestUs = free.plan.machine.emptyBytesPerSecond = 0;
  free.plan.machine.downOverheadUs.reset();
  const auto compiled = compileChecked(step, options), ofSteady = compileChecked(step, steady),
             ofFree = compileChecked(step, free);
  if (!compiled || !ofSteady || !ofFree)
    return std::numeric_limits<double>::infinity();
  const double over = compiled->prediction.totalUs / compiled->movingBound.totalUs;
  std::printf("| %s | %.1f | %.1f | %.1f | %.1f | %.2f |\n", name, compiled->movingBound.totalUs / 1e3,
              ofSteady->movingBound.totalUs / 1e3, ofFree->prediction.totalUs / 1e3, compiled->prediction.totalUs / 1e3,
              over);
  return over;
}

/// A link with one eviction at a time, by one thread.
static CompileOptions onSlowManagedMemory(std::uint64_t budgetBytes) {
  CompileOptions options = onManagedMemory(budgetBytes);
  options.plan.machine.downBytesPerSecond = 13e9;
  options.plan.machine.bothBytesPerSecond = 31.5e9;
  options.plan.machine.copyOverheadUs = 120;
  options.plan.machine.downAtOnce = 1;
  options.plan.machine.bestUpBytesPerSecond = 51e9;
  options.plan.machine.bestDownBytesPerSecond = 14e9;
  return options;
}

TEST(Pipeline, StreamedWeightsComeCloseToTheBoundOfASlowLink) {
  const Description step = streamingStep();
  EXPECT_LT(overBound("256 MiB", step, onSlowManagedMemory(256 * mebibyte)), 1.17);
  EXPECT_LT(overBound("512 MiB", step, onSlowManagedMemory(512 * mebibyte)), 1.22);
}

TEST(Pipeline, TrainingStepsComeCloseToTheBoundOfASlowLink) {
  const Description step = chainOfLayers();
  EXPECT_LT(overBound("260 MiB", step, onSlowManagedMemory(260 * mebibyte)), 1.2);
  EXPECT_LT(overBound("216 MiB", step, onSlowManagedMemory(216 * mebibyte)), 1.25);
  EXPECT_LT(overBound("172 MiB", step, onSlowManagedMemory(172 * mebibyte)), 1.29);
  CompileOptions withoutOverhead = onSlowManagedMemory(216 * mebibyte);
  withoutOverhead.plan.machine.copyOverheadUs = 0;
  EXPECT_LT(overBound("216 MiB, operations cost nothing", step, withoutOverhead), 1.1);
}

/// The steps with what their kernels take with one operand in host memory on one H200, beyond what they take on the
/// device: as much as its bytes need at 50 GB/s up and 38 down, times this. What is written goes faster than evictions.
/// Forward kernels go through a weight three times, which makes less of a difference where the L2 cache holds it.
static Description measuredInHostMemory(Description step, float forwardWeight = 1.4F) {
  for (Node &node : step.nodes)
    for (Access &access : node.accesses)
      access.slowdown = access.must == modeWrite ? 0.62F : access.may == modeReadWrite ? 0.66F : 0.85F;
  for (Node &node : step.nodes)
    if (node.name == "forward")
      node.accesses[1].slowdown = forwardWeight;
  return step;
}

/// Seven steps and budgets on a link, and how far from the bound each may be.
static void expectCloseToBound(CompileOptions (*onLink)(std::uint64_t budgetBytes), const std::array<double, 7> &most) {
  const Description streaming = streamingStep(), training = chainOfLayers();
  EXPECT_LT(overBound("16 weights of 64 MiB, 256 MiB stay", streaming, onLink(256 * mebibyte)), most[0]);
  EXPECT_LT(overBound("the same, 512 MiB stay", streaming, onLink(512 * mebibyte)), most[1]);
  EXPECT_LT(overBound("a net of 434 MiB, at 60 %", training, onLink(260 * mebibyte)), most[2]);
  EXPECT_LT(overBound("at 50 %", training, onLink(216 * mebibyte)), most[3]);
  EXPECT_LT(overBound("at 40 %", training, onLink(172 * mebibyte)), most[4]);
  const auto unknown = [&](std::uint64_t budgetBytes) {
    CompileOptions options = onLink(budgetBytes);
    options.plan.backend = Backend::ManagedUnknown;
    return options;
  };
  EXPECT_LT(overBound("at 60 %, accesses not all known", training, unknown(260 * mebibyte)), most[5]);
  EXPECT_LT(overBound("at 40 %, accesses not all known", training, unknown(172 * mebibyte)), most[6]);
}

TEST(Pipeline, StepsComeCloseToTheManagedBound) {
  expectCloseToBound(onManagedMemory, {1.26, 1.32, 1.32, 1.33, 1.38, 1.56, 1.76});
}

static CompileOptions withHosting(const Description &step, std::uint64_t budgetBytes) {
  CompileOptions options = onMeasuredManagedMemory(budgetBytes);
  setManagedHosting(options.plan.machine);
  for (BufferIndex buffer = 0; buffer < step.buffers.size(); ++buffer)
    if (step.buffers[buffer].isPrivate)
      options.managed.mayBeHosted.push_back(buffer);
  return options;
}

/// The same where buffers may stay in host memory.
static double overBoundWithHosting(const char *name, const Description &step, std::uint64_t budgetBytes,
                                   Backend backend = Backend::Managed) {
  CompileOptions options = withHosting(step, budgetBytes);
  options.plan.backend = backend;
  const auto compiled = compileChecked(step, options);
  if (!compiled)
    return std::numeric_limits<double>::infinity();
  const double over = compiled->prediction.totalUs / compiled->movingBound.totalUs;
  std::printf("| %s | %.1f | %.1f | %.2f | %.0f |\n", name, compiled->movingBound.totalUs / 1e3,
              compiled->prediction.totalUs / 1e3, over, static_cast<double>(compiled->hostedBytes()) / mebibyte);
  return over;
}

TEST(Pipeline, WhatIsHostedBringsStepsCloserToTheManagedBound) {
  const Description streaming = measuredInHostMemory(streamingStep()), training = measuredInHostMemory(chainOfLayers());
  const Description large = measuredInHostMemory(chainOfLayers(6, 4), 2.55F);
  EXPECT_LT(overBoundWithHosting("16 weights of 64 MiB, 256 MiB stay", streaming, 256 * mebibyte), 0.91);
  EXPECT_LT(overBoundWithHosting("the same, 512 MiB stay", streaming, 512 * mebibyte), 0.95);
  EXPECT_LT(overBoundWithHosting("a net of 434 MiB, at 60 %", training, 260 * mebibyte), 1.12);
  EXPECT_LT(overBoundWithHosting("at 50 %", training, 216 * mebibyte), 1.06);
  EXPECT_LT(overBoundWithHosting("at 40 %", training, 172 * mebibyte), 1.04);
  const Backend unknown = Backend::ManagedUnknown;
  EXPECT_LT(overBoundWithHosting("at 60 %, accesses not all known", training, 260 * mebibyte, unknown), 1.13);
  EXPECT_LT(overBoundWithHosting("at 40 %, accesses not all known", training, 172 * mebibyte, unknown), 1.05);
  EXPECT_LT(overBoundWithHosting("half as many layers of four times the size, at 60 %", large, 576 * mebibyte), 1.05);
  EXPECT_LT(overBoundWithHosting("at 40 %", large, 384 * mebibyte), 1.11);
  const Description deep = measuredInHostMemory(chainOfLayers(50));
  EXPECT_LT(overBoundWithHosting("50 layers, at 60 %", deep, 990 * mebibyte), 1.09);
}

TEST(Pipeline, StepsComeCloseToTheBoundOfAMeasuredLink) {
  expectCloseToBound(onMeasuredManagedMemory, {1.28, 1.35, 1.48, 1.41, 1.39, 1.5, 1.66});
}

// Where a weight takes the room of the one before as a whole, the link waits for that to leave, and for the kernel.
// With room for half a weight more it does not, and that is worth the bytes.
TEST(Pipeline, WhatStreamsLeavesRoomForWhatComesNext) {
  const auto upBusyShare = [](const CompileOptions &options, const Machine &measured) {
    const tl::expected<Compiled, PlanError> compiled = compileChecked(streamingStep(), options);
    if (!compiled)
      return 0.0;
    const Prediction prediction = predictManaged(compiled->lowered, measured);
    return prediction.upBusyUs / prediction.totalUs;
  };
  const CompileOptions measured = onMeasuredManagedMemory(256 * mebibyte);
  EXPECT_LT(upBusyShare(onManagedMemory(256 * mebibyte), measured.plan.machine), 0.9);
  EXPECT_GT(upBusyShare(measured, measured.plan.machine), 0.97);
}

// Ways to bring pages back can be compared: what leaves is the same in all of them.
TEST(Pipeline, OnManagedMemoryTheSameLeavesHoweverPagesComeBack) {
  const auto departures = [](Prefetching prefetching) {
    std::vector<std::tuple<NodeKind, BufferIndex, std::uint64_t, std::uint64_t>> result;
    CompileOptions options = onManagedMemory(172 * mebibyte);
    options.managed.prefetching = prefetching;
    const tl::expected<Compiled, PlanError> compiled = compile(chainOfLayers(), options);
    EXPECT_TRUE(compiled);
    for (const Node &node : compiled->lowered.nodes)
      if (node.kind == NodeKind::Evict || node.kind == NodeKind::Discard)
        result.push_back({node.kind, node.buffer, node.range.offset, node.range.size});
    std::sort(result.begin(), result.end());
    return result;
  };
  EXPECT_FALSE(departures(Prefetching::Ahead).empty());
  EXPECT_EQ(departures(Prefetching::AtLaunch), departures(Prefetching::Ahead));
  EXPECT_EQ(departures(Prefetching::None), departures(Prefetching::Ahead));
}

} // namespace pumpgraph
