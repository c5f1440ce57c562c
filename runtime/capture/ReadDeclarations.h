// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a capture's caller knows of its nodes: which allocations they only read.
#pragma once

#include "runtime/driver/Driver.h"

#include <map>
#include <vector>

namespace pumpgraph::runtime {

/// By node, an address in each allocation that it only reads.
using DeclaredReads = std::map<CUgraphNode, std::vector<CUdeviceptr>>;

/// Collects them while a stream is being captured.
class ReadDeclarations {
public:
  /// Says it of the nodes that `graph` got since the last call. No pointers: of these nodes nothing is known.
  Status add(const Driver &driver, CUgraph graph, const std::vector<CUdeviceptr> &pointers);

  const DeclaredReads &reads() const { return reads_; }

private:
  std::vector<CUgraphNode> known_; ///< in the driver's order, which is that of their creation
  DeclaredReads reads_;
};

} // namespace pumpgraph::runtime
