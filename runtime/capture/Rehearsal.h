// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a first capture of the step looked like, to tell pointers from integers in the second.
#pragma once

#include "runtime/capture/LiftGraph.h"
#include "runtime/memory/Heap.h"

#include <map>
#include <tuple>
#include <unordered_map>

namespace pumpgraph::runtime {

/// Position of each allocation in the order of a capture; nothing for allocations made outside it.
class CaptureOrder {
public:
  explicit CaptureOrder(const Heap &heap);
  std::optional<std::uint32_t> of(const Hit &hit) const;

private:
  std::map<std::pair<BlockId, std::size_t>, std::uint32_t> position_;
};

/// Both captures allocate the same things in the same order at different addresses. A word that holds the address of
/// the k-th allocation in the second capture and the very same value in the first, where that allocation was elsewhere,
/// did not move with it: it is a number, or what an earlier launch left in the padding.
class Rehearsal {
public:
  Rehearsal(const LiftedGraph &graph, const Heap &heap);

  /// Whether `graph` has the same nodes in the same order, and the capture made as many allocations. If not, nothing
  /// can be said about its words.
  bool matches(const LiftedGraph &graph, const Heap &heap) const;

  /// Whether the word is certainly no pointer. `position` is that of the allocation it points at, in the second
  /// capture.
  bool refutes(std::size_t node, const PointerWord &word, std::optional<std::uint32_t> position) const;

private:
  using Place = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>; ///< inner, parameter, offset
  struct Node {
    NodeKind kind;
    std::string name;
    std::map<Place, std::uint64_t> words;
  };

  std::vector<Node> nodes_;
  std::size_t allocations_;
};

} // namespace pumpgraph::runtime
