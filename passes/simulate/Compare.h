// SPDX-License-Identifier: Apache-2.0
/// \file
/// One step under one budget without a plan: demand paging as the driver does it by itself, and what people try first.
#pragma once

#include "passes/simulate/Simulate.h"

#include <string>
#include <vector>

namespace pumpgraph {

struct ComparedPolicy {
  std::string name; ///< "demand paging (51 %)"
  Simulation simulation;
};

struct Comparison {
  UnifiedMemory memory;
  std::uint64_t budgetBytes = 0;
  std::vector<ComparedPolicy> policies;
};

/// The published setting that fetches most ahead of the faults.
inline constexpr std::uint32_t aggressiveDensityPercent = 5;

/// Demand paging at the machine's own density threshold and at the aggressive one, and prefetch at launch.
tl::expected<Comparison, std::string> compare(const Description &captured, std::uint64_t budgetBytes,
                                              const UnifiedMemory &memory);

} // namespace pumpgraph
