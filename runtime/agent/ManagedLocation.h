// SPDX-License-Identifier: Apache-2.0
/// \file
/// Ranges of managed memory, and the targets of prefetches and advice, as driver arguments.
#pragma once

#include "runtime/driver/Driver.h"

#include <cstdint>

namespace pumpgraph::runtime {

struct ManagedRange {
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;
};

inline CUmemLocation onDevice(int device) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

inline CUmemLocation inHostMemory() {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_HOST;
  return location;
}

} // namespace pumpgraph::runtime
