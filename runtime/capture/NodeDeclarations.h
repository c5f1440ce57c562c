// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a capture's caller knows of its nodes: which allocations they only read, and what the program calls them.
#pragma once

#include "runtime/driver/Driver.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace pumpgraph::runtime {

/// By node, an address in each allocation that it only reads.
using DeclaredReads = std::map<CUgraphNode, std::vector<CUdeviceptr>>;
using NodeLabels = std::map<CUgraphNode, std::string>;

/// Collects them while a stream is being captured. Each of the two kinds counts the nodes that are new to it.
class NodeDeclarations {
public:
  /// Says it of the nodes that `graph` got since the last call. No pointers: of these nodes nothing is known.
  Status addReads(const Driver &driver, CUgraph graph, const std::vector<CUdeviceptr> &pointers);
  /// Says it of the nodes that `graph` got since the last call. Empty: these nodes have none.
  Status addLabel(const Driver &driver, CUgraph graph, std::string_view label);

  const DeclaredReads &reads() const { return reads_; }
  const NodeLabels &labels() const { return labels_; }

private:
  Status look(const Driver &driver, CUgraph graph);

  std::vector<CUgraphNode> known_; ///< in the order in which they came
  std::size_t readsSaid_ = 0;      ///< of how many of them
  std::size_t labelsSaid_ = 0;     ///< of how many of them
  DeclaredReads reads_;
  NodeLabels labels_;
};

} // namespace pumpgraph::runtime
