// SPDX-License-Identifier: Apache-2.0
/// \file
/// From the options that several passes share (machineOptions in Passes.td) to the machine they describe.
#pragma once

#include "passes/analysis/Machine.h"
#include "passes/ir/Bytes.h"

namespace pumpgraph::ir {

/// Bandwidths in decimal GB/s, the overhead in microseconds.
inline Machine makeMachine(double up, double down, double both, double device, double copyOverhead, Bytes hostMemory) {
  constexpr double giga = 1e9;
  Machine machine;
  machine.upBytesPerSecond = up * giga;
  machine.downBytesPerSecond = down * giga;
  machine.bothBytesPerSecond = both * giga;
  machine.deviceBytesPerSecond = device * giga;
  machine.copyOverheadUs = copyOverhead;
  if (hostMemory.count > 0)
    machine.hostBytes = hostMemory.count;
  return machine;
}

} // namespace pumpgraph::ir
