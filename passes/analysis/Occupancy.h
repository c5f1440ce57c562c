// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which pages have which frames when, in a replay whose times are known.
#pragma once

#include "passes/analysis/Prediction.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <vector>

namespace pumpgraph {

inline constexpr NodeIndex noNode = UINT32_MAX;

/// Bytes of frames in use over time.
std::vector<MemoryPoint> occupancy(const Description &description, const std::vector<NodeTimes> &times);

/// Neighbouring pages of one buffer in neighbouring frames, for as long as these are theirs alone.
struct Tenancy {
  BufferIndex buffer = 0; ///< where pages stay in their frames at several addresses, the first
  std::uint64_t firstPage = 0, pages = 0;
  std::int32_t firstFrame = 0;
  double beginUs = 0;
  double endUs = 0; ///< infinite: the pages are on the device at the step boundary
  /// The transfer or captured node with which it begins; none if the pages are there before the step.
  NodeIndex arrival = noNode;
  NodeIndex firstUse = noNode, lastUse = noNode; ///< of the nodes that compute
  bool hostHasIt = false;                        ///< at the end: nothing was written since it was last copied
};

/// The frames' tenants over one replay of a planned or lowered step, by `beginUs`. At any time no frame has two, and
/// together they take what occupancy() says. A frame between two tenants counts as the first one's for as long as that
/// one's pages may be touched again without a transfer.
std::vector<Tenancy> tenancies(const Description &description, const std::vector<NodeTimes> &times);

} // namespace pumpgraph
