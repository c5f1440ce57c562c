// SPDX-License-Identifier: Apache-2.0
/// \file
/// From a lifted graph and the heap's allocation facts to the description that is planned.
#pragma once

#include "runtime/capture/LiftGraph.h"
#include "runtime/capture/NodeDeclarations.h"
#include "runtime/capture/Rehearsal.h"
#include "runtime/memory/Heap.h"

#include <set>

namespace pumpgraph::runtime {

/// A captured step: its description, and what of the session its buffers and nodes are.
struct CapturedStep {
  Description description;        ///< nodes[i].captured == i
  std::vector<BlockId> blocks;    ///< by BufferIndex
  std::vector<CUgraphNode> nodes; ///< by captured position
  /// Blocks that no node touches by its parameters, but that need memory of their own: results nobody computed, and
  /// what pointer tables name.
  std::vector<BlockId> besides;
  std::vector<std::string> refusals; ///< why the graph cannot be rewritten; empty if it can
  std::vector<std::string> notes;    ///< what a careful reader of the report should know
};

/// Turns words and spans into accesses. The same for a graph as captured and as lifted again, so that the two can be
/// compared.
class AccessFinder {
public:
  AccessFinder(const Heap &heap, const Rehearsal *rehearsal, const LiftedGraph &captured,
               const DeclaredReads &declared = {});

  /// An access with its block in place of a buffer.
  struct Touch {
    BlockId block = 0;
    Access access;
  };
  /// `position` is the node's among the captured ones.
  std::vector<Touch> touches(std::size_t position, const LiftedNode &node) const;

  std::uint64_t refutedWords() const { return refutedWords_; }
  bool comparedWithRehearsal() const { return rehearsal_ != nullptr; }

private:
  std::optional<Touch> touchOf(std::size_t position, const PointerWord &word) const;
  std::optional<Touch> touchOf(const TouchedSpan &span) const;

  const Heap &heap_;
  const Rehearsal *rehearsal_; ///< null unless there is one that matches
  CaptureAllocations allocations_;
  std::vector<std::set<Member>> declared_; ///< by node's position, what it is declared only to read
  mutable std::uint64_t refutedWords_ = 0;
};

/// `staying`: blocks that are never private, because pointer tables in memory name them (FindHiddenPointers.h) or
/// another step uses them.
CapturedStep describeStep(const LiftedGraph &graph, const Heap &heap, const AccessFinder &finder,
                          const std::set<BlockId> &staying);

/// Bytes of a block that hold allocations.
std::uint64_t contentBytes(const Block &block);

} // namespace pumpgraph::runtime
