// SPDX-License-Identifier: Apache-2.0
/// \file
/// The rehearsal: a first capture, which tells pointers from integers in the second one, with its declarations.
#pragma once

#include "runtime/capture/LiftGraph.h"
#include "runtime/capture/NodeDeclarations.h"
#include "runtime/memory/Heap.h"

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace pumpgraph::runtime {

/// An allocation: its block and its member there.
using Member = std::pair<BlockId, std::size_t>;

/// An allocation that a node reaches by addresses in memory.
struct ReachedMember {
  Member member;
  bool isWritten = false;
};

/// What a node reaches by addresses in memory.
struct ReachedMembers {
  std::vector<ReachedMember> members;
  bool isWhole = true; ///< all that was declared is among them
};

/// The allocations of the heap's last capture.
class CaptureAllocations {
public:
  explicit CaptureAllocations(const Heap &heap);
  bool contains(const Hit &hit) const { return members_.contains({hit.block, hit.member}); }
  /// As requested, in the order of the heap's capture.
  const std::vector<std::uint64_t> &sizes() const { return sizes_; }

private:
  std::set<Member> members_;
  std::vector<std::uint64_t> sizes_;
};

/// The declarations about one node's accesses.
class DeclaredAccesses {
public:
  DeclaredAccesses(const Heap &heap, const NodeDeclarations &declarations, CUgraphNode node);

  bool isRead(const Hit &hit) const { return reads_.contains({hit.block, hit.member}); }
  bool isAside(const Hit &hit) const { return asides_.contains({hit.block, hit.member}); }
  /// All that the node touches of the allocation, disjoint, counted in its block; none: nobody knows.
  std::vector<Range> extentsOf(const Hit &hit) const;
  /// Whether all that the node writes of memory that was there before the capture is known, and this is not of it.
  bool isNotWritten(const Hit &hit, const CaptureAllocations &own) const {
    return writes_ && !own.contains(hit) && !writes_->contains({hit.block, hit.member});
  }

private:
  std::set<Member> reads_, asides_;
  std::optional<std::set<Member>> writes_;
  std::map<Member, std::vector<Range>> extents_;
};

/// Whether what operations say of all that they write counts for an allocation: it is one of the program's own, or as
/// small as the state of a random-number generator. Libraries may have workspaces of which operations say nothing.
bool isOfTheProgram(const Allocation &allocation);

/// Both captures launch the same kernels in the same order, on memory at different addresses. A word is a number, or a
/// remain of an earlier launch in padding, if it holds an address inside an allocation of the second capture and had
/// the same value in the first capture, ahead of that allocation: it did not move with the allocation. If the word
/// pointed into an allocation of the first capture as well, it proves nothing: where addresses are short, the second
/// capture reuses those of the first.
///
/// A caller that watches its framework can change the framework's allocations: PyTorch adds gradients up in place,
/// except under a dispatch mode. The caller therefore watches the rehearsal. Its declarations carry over to the same
/// parameters of the same nodes in the second capture, which runs unwatched. A node that works in place in the second
/// capture alone has two parameters for one buffer: if either is undeclared, the buffer may be written.
class Rehearsal {
public:
  Rehearsal(const LiftedGraph &graph, const Heap &heap, const NodeDeclarations &declarations = {});

  const std::vector<RehearsedAllocation> &allocations() const { return allocations_; }

  /// Forgets the nodes that `graph`, the second capture, does without. Where PyTorch sees a dispatch mode it works on a
  /// copy in place of the original, and checks more: gradients of indexed reads are such. Where several nodes may be
  /// the one that is left, nothing is known of it. An operation that loses a node is another one, and no purity carries
  /// over. Nothing is forgotten if `graph` has a node that is not in the rehearsal, or in another order.
  void forgetNodesBeside(const LiftedGraph &graph);
  /// How many that were.
  std::size_t forgotten() const { return forgotten_; }

  /// Whether `graph` has the same nodes in the same order. If not, nothing can be said about its words.
  bool matches(const LiftedGraph &graph) const { return differenceTo(graph).empty(); }
  /// Whether `graph` is another rehearsal of the same: also by the sizes of launches, and by pointers at memory that
  /// was there before, which stand in parameters of their own.
  bool isLike(const LiftedGraph &graph) const;
  /// Where `graph` first differs, for people; empty if it matches.
  std::string differenceTo(const LiftedGraph &graph) const;

  /// Whether the word is certainly no pointer. `hit`: its target in the second capture.
  bool refutes(std::size_t node, const PointerWord &word, const Hit &hit, const CaptureAllocations &second) const;

  /// Whether the word certainly is an address: it led to the same byte of an allocation in the first capture, and had
  /// another value there. `hit` as before.
  bool hasMoved(std::size_t node, const PointerWord &word, const Hit &hit) const;

  /// Whether anything among the parameters of `now`, the node in the second capture, but `words`, which have moved,
  /// leads where one of these words does, in both captures, in units of 1 byte to a page and whatever its upper bits: a
  /// page's number, an address with a tag, or the distance between two. Not half an address, for such are often left
  /// between parameters.
  bool hasMovedInAnotherForm(std::size_t node, const LiftedNode &now, const std::vector<PointerWord> &words) const;

  /// Whether the node only reads what this parameter points at.
  bool isDeclaredRead(std::size_t node, const PointerWord &word) const;
  /// Whether this parameter points where it did, at memory that was there before and that the node's operation does
  /// not say it writes, though it says what it writes.
  bool isNotWritten(std::size_t node, const PointerWord &word) const;
  /// Whether the contents behind this parameter reach nothing that the node writes elsewhere.
  bool isDeclaredAside(std::size_t node, const PointerWord &word) const;
  /// By node of `graph`, the second capture, which matches: what it reaches by addresses in memory there. An allocation
  /// of the first capture is all those of the second one that stand where it stood, in parameters, copies or fills;
  /// none if it stood nowhere. One that was there before is itself, too.
  std::vector<ReachedMembers> reaches(const LiftedGraph &graph, const Heap &heap) const;
  /// The name of the allocation behind this parameter; empty if it has none.
  const std::string &nameOf(std::size_t node, const PointerWord &word) const;
  const std::string &label(std::size_t node) const { return nodes_[node].label; }
  NodeOperation operation(std::size_t node) const { return nodes_[node].operation; }
  NodeArithmetic arithmetic(std::size_t node) const { return nodes_[node].arithmetic; }

private:
  using Place = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>; ///< inner, parameter, offset
  struct Word {
    std::uint64_t value = 0;
    std::int64_t offset = 0; ///< from the start of its target
    std::optional<Member> target;
    bool leadsToOurs = false; ///< to an allocation of the rehearsal
    bool isDeclaredRead = false;
    bool isDeclaredAside = false;
    bool isNotWritten = false;
    std::string name;
  };
  /// Where a copy or fill begins.
  struct Span {
    std::optional<Member> target;
    std::int64_t offset = 0;
  };
  struct Reached {
    std::uint64_t address = 0;
    Member target;
    bool isOurs = false; ///< an allocation of the rehearsal
    bool isWritten = false;
  };
  struct Node {
    NodeKind kind{};
    std::string name;
    bool isKnown = true; ///< it is certain which node of the second capture it is
    std::string label;
    NodeOperation operation;
    NodeArithmetic arithmetic;
    std::map<Place, Word> words;
    std::vector<Span> spans;
    std::vector<Reached> reach;
    std::optional<KernelLaunch> launch; ///< of a kernel of the graph itself
  };

  /// Whether they may be one node in two captures, as far as kinds, names and sizes of launches tell.
  static bool areAlike(const LiftedNode &now, const Node &before);
  /// Whether there were as many buffers to point at.
  bool hasAllocationsOf(const CaptureAllocations &second) const;
  static Place placeOf(const PointerWord &word) { return {word.inner, word.parameter, word.offset}; }
  const Word *find(std::size_t node, const PointerWord &word) const;

  std::vector<Node> nodes_;
  std::vector<RehearsedAllocation> allocations_;
  std::size_t forgotten_ = 0;
};

} // namespace pumpgraph::runtime
