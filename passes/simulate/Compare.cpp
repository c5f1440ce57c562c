// SPDX-License-Identifier: Apache-2.0
#include "passes/simulate/Compare.h"

#include <fmt/format.h>

namespace pumpgraph {

static std::string nameOf(const SimulationOptions &options) {
  if (options.policy == PagingPolicy::PrefetchAtLaunch)
    return "prefetch at launch";
  return fmt::format("demand paging ({} %)", options.memory.densityPercent);
}

tl::expected<Comparison, std::string> compare(const Description &captured, std::uint64_t budgetBytes,
                                              const UnifiedMemory &memory) {
  const SimulationOptions demand{budgetBytes, PagingPolicy::DemandPaging, memory};
  SimulationOptions aggressive = demand, prefetch = demand;
  aggressive.memory.densityPercent = aggressiveDensityPercent;
  prefetch.policy = PagingPolicy::PrefetchAtLaunch;

  Comparison comparison{memory, budgetBytes, {}};
  for (const SimulationOptions &options : {demand, aggressive, prefetch}) {
    tl::expected<Simulation, std::string> simulation = simulate(captured, options);
    if (!simulation)
      return tl::unexpected(std::move(simulation.error()));
    comparison.policies.push_back({nameOf(options), std::move(*simulation)});
  }
  return comparison;
}

} // namespace pumpgraph
