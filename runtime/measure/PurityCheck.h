// SPDX-License-Identifier: Apache-2.0
/// \file
/// Checks declared purity: each kernel runs twice from the same state.
#pragma once

#include "runtime/measure/ComparedRuns.h"
#include "runtime/state/StepState.h"

namespace pumpgraph::runtime {

/// The evidence that a node is not pure.
struct FalsePurity {
  enum class Kind : std::uint8_t { Irreproducible, WritesWhatItReads, DependsOnAside };
  NodeIndex node = 0;
  Kind kind = Kind::Irreproducible;
  std::string buffer; ///< where, as in "\"out\"[0, 512]"

  std::string text() const; ///< "\"out\"[0, 512] comes out otherwise in a second run"
};

/// Nodes that run one kernel and are not pure.
struct FalseKernel {
  std::string name;
  std::size_t nodes = 0;
  /// "\"noisy\" is said to be pure, but of node 3 (conv1) \"out\"[0, 512] comes out otherwise in a second run"
  std::string text;
};

/// In the order of their first nodes.
std::vector<FalseKernel> byKernel(const std::vector<FalsePurity> &found, const Description &captured);

/// Checks some kernels of a step during a run as captured, part by part, every buffer in memory of its own. It compares
/// each kernel's writes, if they are read later; its read-only operands, if they are small; and its results with aside
/// operands poisoned.
class PurityCheck {
public:
  /// Counters, positions and the state of generators are smaller.
  static constexpr std::uint64_t stateBytes = std::uint64_t{1} << 20;
  static constexpr std::uint64_t anyBytes = UINT64_MAX;

  /// `nodes`: captured positions, ascending. `graphNodes`: all nodes of a graph that is as captured. What the kernels
  /// only read is compared up to `mostReadBytes`.
  PurityCheck(const StepState &step, const std::vector<CUgraphNode> &graphNodes, const std::vector<NodeIndex> &nodes,
              std::uint64_t mostReadBytes);

  /// The kernels that a plan could run again.
  static std::vector<NodeIndex> repeatable(const StepState &step);
  /// The kernels that the plan in force runs again.
  static std::vector<NodeIndex> repeated(const StepState &step);

  /// Gets memory for copies. Where there is none nothing is checked, and the reason is returned; else it is empty.
  Expected<std::string> reserve();
  /// Gives it back. Nothing may be running; nothing is checked from then on.
  Status release();
  bool wants(NodeIndex node) const { return wanted_.contains(node); }
  /// Runs the node, several times; it finds what it finds in the step. Leaves what one run leaves, unless the node is
  /// not pure, and waits. False where it has not run: there is nothing to compare, or the driver does not clone it.
  Expected<bool> check(NodeIndex node);

  std::uint64_t reservedBytes() const { return runs_.reservedBytes(); }
  std::uint64_t checked() const { return checked_; }
  const std::vector<FalsePurity> &found() const { return found_; }

private:
  using Piece = ComparedRuns::Piece;
  struct Touch {
    NodeIndex node = 0;
    const Access *access = nullptr;
  };

  const Description &captured() const { return step_.captured.description; }
  std::vector<Piece> piecesOf(NodeIndex node) const;
  std::optional<Piece> pieceOf(NodeIndex node, BufferIndex buffer, const Range &range) const;
  bool isFirst(NodeIndex node, BufferIndex buffer, const Range &range) const;
  bool isReadAfter(NodeIndex node, BufferIndex buffer, const Range &range) const;
  void judge(NodeIndex node);
  Status tryWithOtherAsides(NodeIndex node);
  /// Whether there is such a piece; then the node is noted.
  bool note(NodeIndex node, FalsePurity::Kind kind, const std::function<bool(const Piece &)> &shows);

  const StepState &step_;
  const Driver &driver_;
  CUstream stream_;
  const std::vector<CUgraphNode> &graphNodes_;
  std::set<NodeIndex> wanted_;
  std::uint64_t mostReadBytes_;
  std::vector<std::vector<Touch>> touches_; ///< by buffer, in the order of nodes
  ComparedRuns runs_;
  std::uint64_t checked_ = 0;
  std::vector<FalsePurity> found_;
};

} // namespace pumpgraph::runtime
