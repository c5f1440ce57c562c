// SPDX-License-Identifier: Apache-2.0
// Prints how long planning takes, from small steps to far larger ones than any seen.
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/PlanResidency.h"
#include "test/unit/plan/RegularStep.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

namespace pumpgraph {
namespace {

template <typename Work> double milliseconds(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

TEST(PlanningTime, GrowsGently) {
  std::printf("%8s %8s %9s %9s %9s %9s\n", "nodes", "buffers", "peak GiB", "plan ms", "lower ms", "transfers");
  for (int layers : {166, 500, 1666, 3333, 8333}) {
    test::RegularStepShape shape;
    shape.layers = layers;
    shape.activationPages = layers > 1000 ? 1 : 2;
    shape.weightPages = 1;
    shape.workspacePages = 1;
    const Description step = test::regularStep(shape);
    const Machine machine;
    const std::uint64_t peakPages = planResidency(step, {0, machine})->stats.peakPagesBefore;
    PlannedStep plan;
    Description lowered;
    const double planMs = milliseconds([&] { plan = *planResidency(step, {peakPages / 2 * step.pageBytes, machine}); });
    const double lowerMs = milliseconds([&] { lowered = lowerVirtual(plan.description); });
    std::printf("%8zu %8zu %9.1f %9.1f %9.1f %9llu\n", step.nodes.size(), step.buffers.size(),
                static_cast<double>(peakPages * step.pageBytes) / static_cast<double>(std::uint64_t{1} << 30), planMs,
                lowerMs, static_cast<unsigned long long>(plan.stats.evictions + plan.stats.prefetches));
    EXPECT_GT(lowered.nodes.size(), step.nodes.size());
  }
}

} // namespace
} // namespace pumpgraph
