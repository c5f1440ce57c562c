// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a plan does with the values that are alive where the step needs the most memory.
#pragma once

#include "passes/rematerialize/Remakeable.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>

namespace pumpgraph {

/// Bytes of the values that are alive at the captured peak, by what becomes of them between it and their next use.
struct Ways {
  std::uint64_t kept = 0;   ///< on the device
  std::uint64_t moved = 0;  ///< copied back from the host
  std::uint64_t again = 0;  ///< made again
  std::uint64_t hosted = 0; ///< in host memory at all times
};

/// `found` is of the captured step of which `lowered`, for virtual memory, is a plan.
Ways findWays(const Remakeable &found, const Description &lowered);

} // namespace pumpgraph
