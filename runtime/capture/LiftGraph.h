// SPDX-License-Identifier: Apache-2.0
/// \file
/// Lifts a CUgraph from the driver: nodes in a topological order, edges with their kinds, and every word among a node's
/// parameters that could be an address of the session.
#pragma once

#include "pumpgraph/graph/Description.h"
#include "runtime/capture/NodeDeclarations.h"
#include "runtime/memory/AddressSpace.h"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

class FillKernel;

/// Eight bytes among a kernel's parameters whose value lies in the session's addresses.
struct PointerWord {
  std::uint32_t inner = 0;     ///< which node of a child graph, counted depth first; 0 for a node of the graph itself
  std::uint32_t parameter = 0; ///< position among the kernel's parameters
  std::uint32_t offset = 0;    ///< bytes from the parameter's start
  bool plain = false;          ///< the parameter is these eight bytes and no more
  std::uint64_t value = 0;

  friend bool operator==(const PointerWord &, const PointerWord &) = default;
};

/// The launch of a kernel.
struct KernelLaunch {
  std::uint32_t inner = 0; ///< as in PointerWord
  std::string kernel;
  std::array<std::uint32_t, 3> grid{};
  std::array<std::uint32_t, 3> block{};
  std::vector<char> bytes;       ///< of all parameters, one after the other
  std::vector<std::size_t> ends; ///< by parameter, where it ends in `bytes`

  /// Where a parameter begins in `bytes`.
  std::size_t beginOf(std::size_t index) const { return index == 0 ? 0 : ends[index - 1]; }
  /// Empty if there is no such parameter.
  std::span<const char> parameter(std::size_t index) const;
  /// As the driver takes them. What they point at is `bytes`, and only read.
  std::vector<void *> pointers() const;
  friend bool operator==(const KernelLaunch &, const KernelLaunch &) = default;
};

/// The exact bytes that a copy or a fill reads or writes.
struct TouchedSpan {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  Mode may = modeNone;
  Mode must = modeNone;

  friend bool operator==(const TouchedSpan &, const TouchedSpan &) = default;
};

/// Host memory that a captured copy brings to the device.
struct HostSource {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t target = 0; ///< where its bytes come to lie, one after the other; 0: elsewhere, or in another order
};

/// Memory outside the session, on the device or the host.
struct OutsideSpan {
  std::uint64_t address = 0; ///< 0: an array
  std::uint64_t bytes = 0;
};

struct LiftedNode {
  CUgraphNode handle = nullptr;
  NodeKind kind = NodeKind::Opaque;
  std::string name;
  std::string label;         ///< the program's name for it, unknown to the driver
  NodeOperation operation;   ///< that it is part of, which the driver does not know
  NodeArithmetic arithmetic; ///< likewise
  std::string refusal;       ///< why a graph with this node cannot be rewritten; empty if it can
  std::vector<PointerWord> words;
  std::vector<TouchedSpan> spans;
  std::vector<KernelLaunch> launches; ///< of a kernel, or of those in a child graph, by ascending `inner`
  std::vector<HostSource> hostSources;
  std::vector<OutsideSpan> outside;  ///< written by copies and fills
  bool callsHost = false;            ///< it is a host function, or a child graph with one
  std::optional<CUDA_MEMCPY3D> copy; ///< memcpy nodes of the graph itself

  /// Whether the other touches the same memory in the same way, as far as parameters tell.
  bool hasParametersOf(const LiftedNode &other) const {
    return words == other.words && spans == other.spans && launches == other.launches;
  }
};

/// `from` and `to` are positions in LiftedGraph::nodes.
struct LiftedEdge {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  EdgeKind kind = EdgeKind::Full;
  CUgraphEdgeData data{};
};

struct LiftedGraph {
  std::vector<LiftedNode> nodes; ///< every edge goes from a smaller to a larger position
  std::vector<LiftedEdge> edges; ///< at most one between two nodes: the stronger
};

/// Fails only when the driver does; what it cannot see into becomes a node with a refusal. `context` is where the
/// kernels of the graph are expected to run. Nodes that `fills` added, which may be null, are the fills that they
/// replaced.
Expected<LiftedGraph> liftGraph(const Driver &driver, CUgraph graph, const AddressSpace &addresses, CUcontext context,
                                const FillKernel *fills = nullptr);

} // namespace pumpgraph::runtime
