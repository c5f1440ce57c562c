// SPDX-License-Identifier: Apache-2.0
// Plans the traces of the G10 study, where they are at hand, and prints how the plans compare with the bound.
#include "passes/analysis/Bound.h"
#include "passes/analysis/Prediction.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/PlanResidency.h"
#include "test/unit/plan/G10Trace.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace pumpgraph {
namespace {

constexpr double gibi = 1024.0 * 1024.0 * 1024.0;

class G10 : public testing::TestWithParam<const char *> {};

TEST_P(G10, PlansAreCorrectAndNearTheBound) {
  const Description step =
      test::readG10Trace(std::string(PUMPGRAPH_G10_TRACES) + "/" + GetParam() + ".json", std::uint64_t{2} << 20);
  const Machine machine = test::g10Machine();
  const std::uint64_t peakBytes = planResidency(step, {0, machine})->stats.peakPagesBefore * step.pageBytes;
  for (double gib : {40.0, 20.0, 11.6, 10.0, peakBytes / gibi * 0.75, peakBytes / gibi * 0.5, peakBytes / gibi * 0.3}) {
    const std::uint64_t budgetBytes = static_cast<std::uint64_t>(gib * gibi);
    const auto plan = planResidency(step, {budgetBytes, machine});
    if (!plan) {
      std::printf("%-16s %6.1f GiB: %s\n", GetParam(), gib, plan.error().message.c_str());
      continue;
    }
    const Description lowered = lowerVirtual(plan->description);
    for (const Violation &violation : checkResidency(lowered))
      ADD_FAILURE() << violation.message;
    const double seconds = predict(lowered, machine).totalUs / 1e6;
    const Bound limit = bound(step, budgetBytes, machine, BoundKind::May);
    std::printf("%-16s %6.1f GiB: predicted %7.2f s, planBound %7.2f s, in memory %7.2f s, up %6.1f GiB, down %6.1f "
                "GiB\n",
                GetParam(), gib, seconds, limit.totalUs / 1e6, limit.inMemoryUs / 1e6,
                static_cast<double>(plan->stats.upBytes) / gibi, static_cast<double>(plan->stats.downBytes) / gibi);
    EXPECT_LE(seconds, limit.totalUs / 1e6 * 1.15);
  }
}

INSTANTIATE_TEST_SUITE_P(Traces, G10,
                         testing::Values("BERT-256", "BERT-512", "VIT-512", "Inceptionv3-512", "ResNet152-1280"));

} // namespace
} // namespace pumpgraph
