// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which leaves of a block a batch of faults brings to the device.
#pragma once

#include "passes/simulate/UnifiedMemory.h"

#include <cstdint>

namespace pumpgraph {

/// The faulted leaves, and around each the largest subtree of the block of which more than `percent` percent is
/// resident or faulted; without what is resident. The leaves of a block are those of a complete binary tree.
LeafMask densityMask(LeafMask resident, LeafMask faulted, std::uint32_t percent);

} // namespace pumpgraph
