// SPDX-License-Identifier: Apache-2.0
/// \file
/// Clones of captured nodes in the driver's graph.
#pragma once

#include "runtime/capture/LiftGraph.h"

#include <string>

namespace pumpgraph::runtime {

/// Adds to `graph` a node that does what `original`, of whatever graph, does: a kernel with all launch attributes, a
/// fill, or a copy on the device. It has no dependencies. A kernel gets `parameters` in place of the original's, unless
/// that is null. `context` is where fills and copies run. Fails, and leaves the graph as it was, where the driver
/// refuses or the node is of another kind.
Expected<CUgraphNode> cloneNode(const Driver &driver, CUgraph graph, CUgraphNode original, CUcontext context,
                                const KernelLaunch *parameters = nullptr);

/// Why a clone does not do what its original does, as far as the driver tells, kernel parameters aside: "it is another
/// kernel". Empty if it does.
Expected<std::string> differenceOfClone(const Driver &driver, CUgraphNode clone, CUgraphNode original);

/// Whether a kernel is launched cooperatively.
bool isCooperative(const Driver &driver, CUgraphNode kernel);

} // namespace pumpgraph::runtime
