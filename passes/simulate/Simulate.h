// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a captured step would take if its private buffers were unified memory and nobody planned:
/// docs/design/cost-model.md.
#pragma once

#include "passes/simulate/PagedMemory.h"
#include "passes/simulate/UnifiedMemory.h"
#include "pumpgraph/graph/Description.h"

#include <tl/expected.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace pumpgraph {

enum class PagingPolicy : std::uint8_t {
  DemandPaging,    ///< nothing moves before a kernel faults on it
  PrefetchAtLaunch ///< each kernel's operands are prefetched in its own stream, just before it
};

struct SimulationOptions {
  std::uint64_t budgetBytes = 0; ///< device memory for exclusive buffers and blocks together
  PagingPolicy policy = PagingPolicy::DemandPaging;
  UnifiedMemory memory;
};

/// Time spent on moving, by cause. The parts add up; part of them may hide behind a kernel.
struct PagingTimes {
  double faultUs = 0;     ///< batches and blocks of faults, prefetch calls
  double fetchUs = 0;     ///< bytes to the device
  double populateUs = 0;  ///< memory for first touches
  double writeBackUs = 0; ///< bytes of evicted blocks

  double totalUs() const { return faultUs + fetchUs + populateUs + writeBackUs; }
  PagingTimes &operator+=(const PagingTimes &other);
};

/// A captured node that takes longer than its cost.
struct PagingStall {
  NodeIndex node = 0;
  double durationUs = 0; ///< beyond its cost
  PagingTimes times;     ///< what was done meanwhile
};

struct Simulation {
  double totalUs = 0;            ///< of the last replay, as all that follows
  std::vector<double> replaysUs; ///< of each; the first fetches what later ones may find on the device
  PagingWork work;
  PagingTimes times;
  std::vector<PagingStall> stalls;  ///< longest first
  std::uint64_t footprintBytes = 0; ///< of the blocks; with this and the exclusive buffers as budget nothing leaves
  std::uint64_t exclusiveBytes = 0; ///< never move

  double stallUs() const;
};

/// Runs the step `replays` times in a row and reports the last. Live-in buffers start in host memory, exclusive ones
/// are on the device throughout. Only captured nodes count; those of unknown cost count as zero: run estimateCosts
/// first. Error: the exclusive buffers leave no room for a single block. A kernel may be larger than the budget.
tl::expected<Simulation, std::string> simulate(const Description &captured, const SimulationOptions &options);

} // namespace pumpgraph
