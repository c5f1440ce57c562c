// SPDX-License-Identifier: Apache-2.0
/// \file
/// The machine a plan is made for: link bandwidths, device memory bandwidth, host memory.
#pragma once

#include <cstdint>

namespace pumpgraph {

/// Decimal bytes per second throughout. The defaults are one H200 on PCIe 5 x16, measured (docs/measurements.md).
struct Machine {
  double upBytesPerSecond = 55e9;       ///< host to device, alone
  double downBytesPerSecond = 55e9;     ///< device to host, alone
  double bothBytesPerSecond = 92e9;     ///< both directions at once, summed
  double deviceBytesPerSecond = 3.9e12; ///< read plus written, one bandwidth-bound kernel
  double copyOverheadUs = 4.0;          ///< added to every copy node whatever its size, microseconds
  std::uint64_t hostBytes = UINT64_MAX; ///< pinned host memory that may be used for spilled data
};

} // namespace pumpgraph
