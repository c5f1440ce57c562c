// SPDX-License-Identifier: Apache-2.0
/// \file
/// An executable subset of a captured step's nodes.
#pragma once

#include "runtime/driver/Driver.h"

#include <string>
#include <vector>

namespace pumpgraph::runtime {

/// An instantiated copy of a graph without the other nodes. Switching nodes of a single instantiation on and off would
/// be faster, but some kernels then fail (docs/results/probes.md).
class StepPart {
public:
  /// Of the nodes of `graph` those at positions in [begin, end).
  StepPart(const Driver &driver, std::size_t begin, std::size_t end) : driver_(driver), begin_(begin), end_(end) {}
  ~StepPart();
  StepPart(const StepPart &) = delete;
  StepPart &operator=(const StepPart &) = delete;

  /// `nodes` are all of the graph's.
  Status make(CUgraph graph, const std::vector<CUgraphNode> &nodes);
  /// Of one node, with a clone of it (CloneNode.h) in place of a copy of the whole graph. Returns why not: the driver
  /// does not clone the node. Empty: it is made.
  Expected<std::string> makeOfClone(CUgraphNode original, CUcontext context);
  Status launch(CUstream stream) const;
  /// Launches and waits.
  Status run(CUstream stream) const;

private:
  std::string name() const { return fmt::format("part of nodes {} to {}", begin_, end_ - 1); }

  const Driver &driver_;
  std::size_t begin_;
  std::size_t end_;
  CUgraph copy_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

} // namespace pumpgraph::runtime
