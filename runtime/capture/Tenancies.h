// SPDX-License-Identifier: Apache-2.0
/// \file
/// Resolves a node's use of a block that several allocations had one after the other (runtime/memory/Heap.h).
#pragma once

#include "runtime/capture/LiftGraph.h"
#include "runtime/memory/Heap.h"

#include <map>
#include <span>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

/// An allocation for a stream is made after all earlier work of the stream. The last nodes of the stream at that point
/// separate earlier uses from later ones.
class Tenancies {
public:
  /// Both must outlive it.
  Tenancies(const LiftedGraph &graph, const Heap &heap);

  /// The hit with the member that had the block when the node at `position` was captured.
  Hit at(std::size_t position, Hit hit) const;

  /// The uses of one block by nodes.
  struct Findings {
    /// Each is the first to use the block on behalf of one member: after all who used it for others before, and before
    /// all who use it for the same one. It finds in the block what is nobody's any more.
    std::vector<NodeIndex> firsts;
    /// Why the graph goes wrong whoever replays it: two members' nodes that come in no order. Empty if there are none.
    std::string conflict;
  };
  /// `uses`: positions of the nodes that touch the block, ascending.
  Findings findingsOf(BlockId block, std::span<const NodeIndex> uses) const;

private:
  /// Whether a path leads from `from` to each of `to`, ascending and all behind it.
  bool leadsToAll(NodeIndex from, std::span<const NodeIndex> to, bool fullEdgesOnly) const;
  std::string conflictBetween(const Block &block, std::span<const NodeIndex> earlier, std::span<const NodeIndex> later,
                              std::size_t member) const;

  const LiftedGraph &graph_;
  const Heap &heap_;
  std::vector<std::vector<std::uint32_t>> leaving_; ///< by node: its edges, as positions in the graph's
  /// By block with several members, by member: the last position that is before it.
  std::map<BlockId, std::vector<std::int64_t>> before_;
};

} // namespace pumpgraph::runtime
