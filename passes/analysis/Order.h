// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which node of a graph completes before which: vector clocks over a greedy cover by chains.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <span>
#include <vector>

namespace pumpgraph {

/// The strict partial order "completes before" of docs/design/plan-correctness.md: paths of Full edges.
///
/// Nodes are appended in a topological order. Each joins a chain, a run of nodes every one of which completes before
/// the next, and keeps a clock: how far every other chain is known to have come. Captured steps are a few chains, and
/// a node that adds nothing to its predecessor's clock shares it, so time and space are near linear in practice.
/// Programmatic edges never order anything here; do not use this for questions of time (see Bound.cpp).
class Order {
public:
  Order() = default;
  /// The order of a description's Full edges.
  explicit Order(const Description &description);

  /// Adds the next node; it completes after each of `predecessors`. Returns its index. `successorCounts`, by node, may
  /// say how many will wait for each: then a chain rather goes on with a node that nobody else waits for, which keeps
  /// streams that wait for one another apart. A chain has nodes of one `lane` only: where nodes of a lane follow one
  /// another anyway, such as transfers of one direction, they make one chain, and leave those of others whole.
  NodeIndex append(std::span<const NodeIndex> predecessors, std::span<const std::uint32_t> successorCounts = {},
                   std::uint8_t lane = 0);

  /// Whether there is a path of Full edges from `a` to `b`. False for a == b. One look-up in `b`'s clock.
  bool completesBefore(NodeIndex a, NodeIndex b) const;

  std::size_t size() const { return places_.size(); }
  std::size_t chainCount() const { return tails_.size(); }

private:
  /// Every node of `chain` up to `position` has completed.
  struct Tick {
    std::uint32_t chain;
    std::uint32_t position;
  };
  /// A run of ticks_, ascending by chain.
  struct Clock {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  struct Place {
    std::uint32_t chain;
    std::uint32_t position;
    Clock others; ///< clock of the chains other than its own
  };

  std::uint32_t chooseChain(std::span<const NodeIndex> predecessors, std::span<const std::uint32_t> successorCounts,
                            const std::vector<Tick> &clock, std::uint8_t lane);
  bool isTail(NodeIndex node) const { return tails_[places_[node].chain] == places_[node].position; }
  void mergeInto(std::vector<Tick> &clock, NodeIndex predecessor);

  std::vector<Place> places_;
  std::vector<Tick> ticks_;
  std::vector<std::uint32_t> tails_; ///< by chain: position of its last node
  std::vector<std::uint8_t> lanes_;  ///< by chain
  std::vector<Tick> scratch_;
};

/// The Full predecessors of every node, by node.
std::vector<std::vector<NodeIndex>> fullPredecessors(const Description &description);

/// How many nodes wait for each, given everybody's predecessors.
std::vector<std::uint32_t> successorCounts(const std::vector<std::vector<NodeIndex>> &predecessors);

/// Ascending by nodes. Of two edges between the same nodes a full one stays, which orders them by completion.
void sortEdges(std::vector<Edge> &edges);

} // namespace pumpgraph
