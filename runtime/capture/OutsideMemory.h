// SPDX-License-Identifier: Apache-2.0
/// \file
/// Memory outside the session that kernels of a captured step reach.
#pragma once

#include "runtime/capture/LiftGraph.h"

#include <optional>
#include <span>
#include <vector>

namespace pumpgraph::runtime {

/// Device or host memory outside the session, as far as the driver knows it.
struct OutsideAllocation {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  bool isOnHost = false;
};

/// The allocation that an address belongs to; nothing if the driver knows none.
std::optional<OutsideAllocation> allocationAt(const Driver &driver, CUdeviceptr address);

/// The allocations outside `addresses` that words among the parameters of kernels lead into. A number that looks like
/// such an address is taken for one. Of host memory only where the word is a whole parameter: what a struct has between
/// its members may be anything, and programs have much pinned memory.
std::vector<OutsideAllocation> outsideOperands(const Driver &driver, std::span<const LiftedNode> nodes,
                                               const AddressSpace &addresses);

} // namespace pumpgraph::runtime
