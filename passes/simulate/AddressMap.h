// SPDX-License-Identifier: Apache-2.0
/// \file
/// Where the buffers of a step would be in one managed arena.
#pragma once

#include "passes/simulate/UnifiedMemory.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace pumpgraph {

inline constexpr std::uint64_t noAddress = std::numeric_limits<std::uint64_t>::max();

/// Offsets in the arena, in whole leaves, of the private buffers that some node touches.
struct AddressMap {
  std::vector<std::uint64_t> offsets; ///< by BufferIndex; `noAddress` for the others
  std::uint64_t footprintBytes = 0;   ///< the arena's size
};

/// With `Addresses::Reused` a buffer's addresses are given away after the last node, in node order, that touches it;
/// buffers that are live across the step keep theirs. Best fit.
AddressMap mapAddresses(const Description &captured, Addresses addresses);

} // namespace pumpgraph
