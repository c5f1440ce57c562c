// SPDX-License-Identifier: Apache-2.0
/// \file
/// Gives advice for managed memory and takes it back.
#pragma once

#include "pumpgraph/graph/Description.h"
#include "runtime/agent/ManagedLocation.h"
#include "runtime/driver/Driver.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace pumpgraph::runtime {

/// Blocks until the driver has changed what it knows of the range; nothing moves.
Status advise(const Driver &driver, int device, const ManagedRange &range, Advice advice);
Status takeBack(const Driver &driver, int device, const ManagedRange &range, Advice advice);

/// What was in host memory by advice stays there without it, and the device goes on to reach it there, until it has
/// been moved. Moves it to the device, by `stream`, and unless it may stay there back again.
Status moveFromHostMemory(const Driver &driver, int device, CUstream stream, const ManagedRange &range,
                          bool mayStayOnDevice);

/// Of an operation or advice.
ManagedRange rangeOf(const Description &lowered, const Node &node);
ManagedRange rangeOf(const Description &lowered, BufferIndex buffer, const Range &range);

/// Takes back the advice of a lowered step, of each as far as `remaining` says, for whoever has the memory next: it is
/// like that of any other buffer then. Goes on where something fails, and returns the first failure. Blocks until
/// done.
Status takeAdviceBack(const Driver &driver, int device, CUstream stream, const Description &lowered,
                      const std::function<std::vector<Range>(const Node &)> &remaining);

} // namespace pumpgraph::runtime
