// SPDX-License-Identifier: Apache-2.0
// Plans the traces of the G10 study at its own memory and at a quarter of it, and prints how the plans compare
// with the bound.
#include "passes/analysis/Bound.h"
#include "passes/analysis/Prediction.h"
#include "passes/analysis/Timeline.h"
#include "passes/check/CheckResidency.h"
#include "passes/lower/LowerVirtual.h"
#include "passes/plan/PlanResidency.h"
#include "passes/trace/ImportTrace.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>

namespace pumpgraph {
namespace {

constexpr double gibi = 1024.0 * 1024.0 * 1024.0;
struct Promise {
  double gib;
  double mostOverBound; ///< predicted time over planBound
};
/// `pump-graph-bench --traces` states what is promised, against better bounds.
constexpr Promise promises[] = {{40.0, 1.03}, {20.0, 1.06}, {10.0, 1.06}};
/// No budget is below this multiple of what the largest kernel touches.
constexpr double room = 1.1;

std::string unpack(const std::string &path) {
  std::string text;
  const gzFile file = gzopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr) << path;
  char chunk[1 << 16];
  for (int size = 0; file && (size = gzread(file, chunk, sizeof(chunk))) > 0;)
    text.append(chunk, static_cast<std::size_t>(size));
  gzclose(file);
  return text;
}

double largestKernelGib(const Description &step) {
  const Timeline timeline(step);
  std::uint64_t most = 0;
  for (NodeIndex node = 0; node < timeline.nodeCount(); ++node)
    most = std::max(most, timeline.workingSetPages(node));
  return static_cast<double>(most * step.pageBytes) / gibi;
}

class G10 : public testing::TestWithParam<const char *> {};

TEST_P(G10, PlansAreCorrectAndNearTheBound) {
  const auto trace = importTrace(unpack(std::string(PUMPGRAPH_TEST_DATA) + "/g10/" + GetParam() + ".json.gz"));
  ASSERT_TRUE(trace) << trace.error().text();
  const double least = largestKernelGib(trace->step) * room;
  for (const auto &[gib, mostOverBound] : promises) {
    const auto budgetBytes = static_cast<std::uint64_t>(std::max(gib, least) * gibi);
    PlanOptions options{budgetBytes, trace->machine};
    options.processors = 1; // tests run side by side, and what is tried ahead mostly counts for nothing
    const auto plan = planResidency(trace->step, options);
    ASSERT_TRUE(plan) << plan.error().message;
    const Description lowered = lowerVirtual(plan->description);
    for (const Violation &violation : checkResidency(lowered))
      ADD_FAILURE() << violation.message;
    const double seconds = predict(lowered, trace->machine).totalUs / 1e6;
    const Bound limit = bound(trace->step, budgetBytes, trace->machine, BoundKind::May);
    std::printf("%-16s %6.1f GiB: predicted %7.2f s, planBound %7.2f s, in memory %7.2f s, up %6.1f GiB, down %6.1f "
                "GiB\n",
                GetParam(), static_cast<double>(budgetBytes) / gibi, seconds, limit.totalUs / 1e6,
                limit.inMemoryUs / 1e6, static_cast<double>(plan->stats.upBytes) / gibi,
                static_cast<double>(plan->stats.downBytes) / gibi);
    EXPECT_LE(seconds, limit.totalUs / 1e6 * mostOverBound);
  }
}

INSTANTIATE_TEST_SUITE_P(Traces, G10,
                         testing::Values("BERT-256", "BERT-512", "VIT-512", "Inceptionv3-512", "ResNet152-1280"));

} // namespace
} // namespace pumpgraph
