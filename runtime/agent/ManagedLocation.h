// SPDX-License-Identifier: Apache-2.0
/// \file
/// Ranges of managed memory, and what prefetches and advice name as their target.
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
