// SPDX-License-Identifier: Apache-2.0
// The simulated H200 against what was measured on one (docs/results/probes.md, docs/design/cost-model.md).
#include "test/unit/simulate/PagedStep.h"

#include <gtest/gtest.h>

namespace pumpgraph {
namespace {

using test::PagedStep;

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;
constexpr std::uint64_t gibi = std::uint64_t{1} << 30;

/// A kernel without compute of its own that reads `bytes` from host memory, once.
double gigabytesPerSecond(std::uint64_t bytes, UnifiedMemory memory, PagingPolicy policy) {
  PagedStep paged;
  const BufferIndex x = paged.live("x", bytes / blockBytes);
  paged.kernel(0, {paged.read(x)});
  memory.replays = 1;
  const auto result = simulate(paged.step, {bytes, policy, memory});
  return static_cast<double>(bytes) / result->totalUs / 1e3;
}

// Measured: 7 to 11 GB/s.
TEST(H200, ReadsThroughFaults) {
  const double rate = gigabytesPerSecond(2 * gibi, h200UnifiedMemory(), PagingPolicy::DemandPaging);
  EXPECT_GE(rate, 7);
  EXPECT_LE(rate, 11);
}

// Measured: 18 GB/s. Within 5 percent.
TEST(H200, ReadsThroughSparseFaults) {
  UnifiedMemory memory = h200UnifiedMemory();
  memory.touchBytes = leafBytes;
  EXPECT_NEAR(gigabytesPerSecond(2 * gibi, memory, PagingPolicy::DemandPaging), 18, 0.05 * 18);
}

struct Prefetch {
  std::uint64_t bytes;
  double measured; ///< GB/s
};

class H200Prefetch : public testing::TestWithParam<Prefetch> {};

// Within 10 percent.
TEST_P(H200Prefetch, MovesAsFastAsMeasured) {
  const auto [bytes, measured] = GetParam();
  EXPECT_NEAR(gigabytesPerSecond(bytes, h200UnifiedMemory(), PagingPolicy::PrefetchAtLaunch), measured, 0.1 * measured);
}

INSTANTIATE_TEST_SUITE_P(Pieces, H200Prefetch,
                         testing::Values(Prefetch{2 * gibi, 51}, Prefetch{128 * mebi, 47}, Prefetch{32 * mebi, 42},
                                         Prefetch{8 * mebi, 33}, Prefetch{2 * mebi, 16}));

} // namespace
} // namespace pumpgraph
