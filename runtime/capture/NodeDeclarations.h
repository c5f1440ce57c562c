// SPDX-License-Identifier: Apache-2.0
/// \file
/// The caller's declarations about captured nodes: buffers that are only read, buffers aside, names, operations, and
/// arithmetic.
#pragma once

#include "runtime/driver/Driver.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pumpgraph::runtime {

/// By node, an address in each allocation of which something is said. Of writes a node without any is one that writes
/// none.
using DeclaredPointers = std::map<CUgraphNode, std::vector<CUdeviceptr>>;
/// Of the allocation that holds its bytes a node touches these, and others that are declared.
struct DeclaredExtent {
  CUdeviceptr begin = 0;
  std::uint64_t bytes = 0;
};
using DeclaredExtents = std::map<CUgraphNode, std::vector<DeclaredExtent>>;
/// Addresses in allocations that a node reaches by addresses in memory.
struct NodeReach {
  std::vector<CUdeviceptr> read;    ///< and does not write
  std::vector<CUdeviceptr> written; ///< may be read, too

  bool empty() const { return read.empty() && written.empty(); }
};
using NodeReaches = std::map<CUgraphNode, NodeReach>;
using NodeLabels = std::map<CUgraphNode, std::string>;

/// The operation of a node. Scratch memory holds nothing between operations.
struct NodeOperation {
  std::uint32_t number = 0; ///< from 1; 0: nobody knows
  bool isPure = false;      ///< see pumpgraph::Node

  explicit operator bool() const { return number != 0; }
};
using Operations = std::map<CUgraphNode, NodeOperation>;
/// The values are those of pumpgraph_operation.
enum class OperationKind : std::uint8_t { Unknown = 0, Whole = 1, Pure = 2 };

/// The time of a group of nodes' arithmetic.
struct NodeArithmetic {
  std::uint32_t group = 0; ///< from 1; 0: none
  double us = 0;           ///< of the group together
};
using Arithmetics = std::map<CUgraphNode, NodeArithmetic>;

/// Collects declarations while a stream is captured. Each kind of declaration counts new nodes for itself.
class NodeDeclarations {
public:
  /// Says it of the nodes that `graph` got since the last call. No pointers: of these nodes nothing is known.
  Status addReads(const Driver &driver, CUgraph graph, const std::vector<CUdeviceptr> &pointers);
  /// Declares the allocations aside: their contents reach nothing that the nodes write elsewhere.
  Status addAsides(const Driver &driver, CUgraph graph, const std::vector<CUdeviceptr> &pointers);
  /// Declares that of the allocations of these extents the nodes touch the extents alone.
  Status addExtents(const Driver &driver, CUgraph graph, const std::vector<DeclaredExtent> &extents);
  /// Of private memory that was there before the capture, the nodes write only this; nothing: nobody knows.
  Status addWrites(const Driver &driver, CUgraph graph, const std::optional<std::vector<CUdeviceptr>> &pointers);
  /// What the nodes reach by addresses in memory, beside the allocations that their parameters lead to. Empty: nobody
  /// knows.
  Status addReach(const Driver &driver, CUgraph graph, const NodeReach &reach);
  /// Says it of the nodes that `graph` got since the last call. Empty: these nodes have none.
  Status addLabel(const Driver &driver, CUgraph graph, std::string_view label);

  /// The nodes that `graph` got since the last call are one operation, unless its kind is unknown.
  Status addOperation(const Driver &driver, CUgraph graph, OperationKind kind);

  /// The arithmetic of the nodes that `graph` got since the last call takes so long together. 0: nobody knows.
  Status addArithmetic(const Driver &driver, CUgraph graph, double us);

  const DeclaredPointers &reads() const { return reads_; }
  const DeclaredPointers &asides() const { return asides_; }
  const DeclaredPointers &writes() const { return writes_; }
  const DeclaredExtents &extents() const { return extents_; }
  const NodeReaches &reaches() const { return reaches_; }
  const NodeLabels &labels() const { return labels_; }
  const Operations &operations() const { return operations_; }
  const Arithmetics &arithmetics() const { return arithmetics_; }

private:
  Status look(const Driver &driver, CUgraph graph);
  /// Of the nodes after the first `said` ones.
  template <typename Said>
  void add(std::map<CUgraphNode, Said> &declared, std::size_t &said, const Said &newOnes) const;

  std::vector<CUgraphNode> known_;  ///< in the order in which they came
  std::size_t readsSaid_ = 0;       ///< of how many of them
  std::size_t asidesSaid_ = 0;      ///< of how many of them
  std::size_t extentsSaid_ = 0;     ///< of how many of them
  std::size_t writesSaid_ = 0;      ///< of how many of them
  std::size_t reachesSaid_ = 0;     ///< of how many of them
  std::size_t labelsSaid_ = 0;      ///< of how many of them
  std::size_t operationsSaid_ = 0;  ///< of how many of them
  std::size_t arithmeticsSaid_ = 0; ///< of how many of them
  DeclaredPointers reads_, asides_, writes_;
  DeclaredExtents extents_;
  NodeReaches reaches_;
  NodeLabels labels_;
  Operations operations_;
  std::uint32_t operationCount_ = 0;
  Arithmetics arithmetics_;
  std::uint32_t arithmeticCount_ = 0;
};

} // namespace pumpgraph::runtime
