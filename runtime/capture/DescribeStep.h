// SPDX-License-Identifier: Apache-2.0
/// \file
/// Builds the description that is planned, from a lifted graph and the heap's allocations.
#pragma once

#include "runtime/capture/AccessTables.h"
#include "runtime/capture/KernelReads.h"
#include "runtime/capture/LiftGraph.h"
#include "runtime/capture/NodeDeclarations.h"
#include "runtime/capture/Rehearsal.h"
#include "runtime/capture/Tenancies.h"
#include "runtime/memory/Heap.h"

#include <map>
#include <set>

namespace pumpgraph::runtime {

/// A word of a kernel's parameters that points into a buffer, with or without known accesses.
struct OperandWord {
  BufferIndex buffer = 0;
  Range allocation;         ///< of the buffer: what the address was allocated with
  std::uint64_t offset = 0; ///< of the buffer: where the address points
  std::uint32_t parameter = 0;
  std::uint32_t inParameter = 0; ///< bytes from the parameter's start
};

/// A captured step: its description, and the session's blocks and nodes behind it.
struct CapturedStep {
  Description description;                     ///< nodes[i].captured == i
  std::vector<BlockId> blocks;                 ///< by BufferIndex
  std::vector<CUgraphNode> nodes;              ///< by captured position
  std::vector<std::vector<OperandWord>> words; ///< by captured position; of kernels outside child graphs
  /// By captured position: allocations that the node reaches by addresses in memory. It has accesses to all of them.
  std::vector<std::set<Member>> reached;
  /// Where repetitions have what their originals have aside; 0: nowhere. All of asideWords() fit, with their addresses'
  /// places in `asideAlignment` bytes.
  CUdeviceptr asideMemory = 0;
  /// Blocks that no node touches by its parameters, but that need memory of their own: results nobody computed, and
  /// what pointer tables name.
  std::vector<BlockId> besides;
  std::vector<std::string> refusals; ///< why the graph cannot be rewritten; empty if it can
  std::string conflict;              ///< why the graph is wrong as it was captured; empty if it is not known to be
  std::vector<std::string> notes;    ///< for careful readers of the report
  std::vector<std::string> warnings; ///< for every user, ahead of the first replay
};

/// The aside accesses of one parameter of a node.
struct AsideWord {
  std::uint32_t parameter = 0;
  std::uint64_t address = 0; ///< of their first byte
  std::uint64_t bytes = 0;   ///< to the end of the last one
};

/// What kernels may take for granted of an address, beside what is there.
inline constexpr std::uint64_t asideAlignment = 512;

/// Of a captured node, ascending by parameter.
std::vector<AsideWord> asideWords(const Description &captured, std::size_t position);

/// Converts words and spans to accesses. The access tables are read once, so later changes of the tables have no
/// effect.
class AccessFinder {
public:
  /// `tables` and `kernels` may be null; the latter is asked later, too.
  AccessFinder(const Heap &heap, const Rehearsal *rehearsal, const LiftedGraph &captured,
               const NodeDeclarations &declarations = {}, const AccessTables *tables = nullptr,
               const KernelReads *kernels = nullptr);

  /// An access with its block in place of a buffer.
  struct Touch {
    BlockId block = 0;
    Access access;

    friend bool operator==(const Touch &, const Touch &) = default;
  };
  /// `position` is the node's among the captured ones.
  std::vector<Touch> touches(std::size_t position, const LiftedNode &node) const;

  /// The memory behind a word of a node's parameters; none if the word is a number.
  std::optional<Hit> operandOf(std::size_t position, const PointerWord &word) const;

  /// Whether the word certainly is an address that the kernel uses and does not store: then another one could stand
  /// there. Never without a rehearsal.
  bool isReplaceable(std::size_t position, const LiftedNode &node, const PointerWord &word) const;

  /// Whether nothing among a kernel's parameters has moved but words: no other form of an address is known there. Never
  /// without a rehearsal.
  bool knowsAddressesByWordsAlone(std::size_t position, const LiftedNode &node) const;

  /// Whether a table says that the kernel is pure in this launch. Never of a child graph.
  bool isPure(std::size_t position, const LiftedNode &node) const;

  /// What the node at `position` reaches by addresses in memory.
  const ReachedMembers &reached(std::size_t position) const { return reached_[position]; }

  std::uint64_t refutedWords() const { return refutedWords_; }
  /// The coverage of the tables, and their contradictions to other knowledge.
  std::vector<std::string> notesOnTables() const;
  bool comparedWithRehearsal() const { return rehearsal_ != nullptr; }

private:
  /// Whether somebody says that the node only reads what the word leads to.
  bool isDeclaredRead(std::size_t position, const LiftedNode &node, const PointerWord &word, const Hit &hit) const;
  /// Whether the word certainly is an address. Never without a rehearsal.
  bool hasMoved(std::size_t position, const PointerWord &word) const;
  /// Appends the accesses through one word.
  void addTouches(std::size_t position, const LiftedNode &node, const PointerWord &word,
                  std::vector<Touch> &touches) const;
  std::optional<Touch> touchOf(const TouchedSpan &span) const;
  Touch touchOf(const ReachedMember &reached) const;
  /// Adds what the capture's own declarations say of the node.
  void addReach(const NodeDeclarations &declarations, CUgraphNode node, ReachedMembers &reached) const;
  /// The table's slot for the word; null if no table fits the launch or covers the word.
  const Slot *slotOf(const LiftedNode &node, const PointerWord &word) const;
  /// Whether the launch meets the conditions of PUMPGRAPH_KERNEL_PURE_APART.
  bool areSlotsApart(std::size_t position, const LiftedNode &node, const KernelAccesses &kernel) const;
  void noteOnTable(const KernelLaunch &launch, const PointerWord &word, std::string_view text,
                   std::size_t position) const;

  const Heap &heap_;
  const Rehearsal *rehearsal_; ///< null unless there is one that matches
  const KernelReads *kernels_;
  CaptureAllocations allocations_;
  std::vector<DeclaredAccesses> declared_;       ///< by node's position
  std::vector<ReachedMembers> reached_;          ///< by node's position
  std::map<std::string, KernelAccesses> tabled_; ///< contents of the tables, by kernel
  std::size_t launches_ = 0;
  std::size_t tabledLaunches_ = 0;
  mutable std::uint64_t refutedWords_ = 0;
  mutable std::map<std::string, std::set<std::size_t>> notesOnTables_; ///< text -> positions of nodes
};

/// `staying`: blocks that are never private, because pointer tables in memory name them (FindHiddenPointers.h) or
/// another step uses them. `pointingAtSelf`: blocks that hold addresses of their own, which are right where they are
/// alone. What several allocations had one after the other is one buffer: whoever is the first to use
/// it for one of them overwrites it, for what it does not write there nobody may look at.
CapturedStep describeStep(const LiftedGraph &graph, const Heap &heap, const AccessFinder &finder,
                          const std::set<BlockId> &staying, const std::set<BlockId> &pointingAtSelf = {});

/// Whether the address of `target`, found in memory at `at`, leaves it where it may move: a temporary of the step holds
/// the address, and all nodes that may read it there have declared to reach the target. In memory that outlives the
/// step others may follow it.
bool isFollowed(const CapturedStep &step, const Heap &heap, std::uint64_t at, const Hit &target);

/// Bytes of a block that hold allocations.
std::uint64_t contentBytes(const Block &block);

} // namespace pumpgraph::runtime
