// SPDX-License-Identifier: Apache-2.0
/// \file
/// A captured step in single assignment: what memory holds from one write to the next, who makes it, who finds it.
#pragma once

#include "passes/analysis/Index.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <span>
#include <vector>

namespace pumpgraph {

enum class AtomIndex : std::uint32_t {};
enum class ValueIndex : std::uint32_t {};

/// Bytes of a buffer that every access covers or misses.
struct Atom {
  BufferIndex buffer = 0;
  Range range;
};

inline constexpr NodeIndex noMaker = UINT32_MAX; ///< there before the step, or never written

/// The contents of an atom from one node that may write it to the next one.
struct Value {
  AtomIndex atom{};
  NodeIndex maker = noMaker;
  /// Ascending: nodes that may read it, or may write the atom without overwriting it for certain.
  std::vector<NodeIndex> readers;
  bool outlives = false; ///< it is there at the end of the step, and somebody may read it later
  bool isAside = false;  ///< its maker leaves it through an access aside: no repetition makes it
};

class StepValues {
public:
  explicit StepValues(const Description &captured);

  const IndexedVector<AtomIndex, Atom> &atoms() const { return atoms_; }
  const IndexedVector<ValueIndex, Value> &values() const { return values_; }
  /// The values that a node finds, and those that it leaves; ascending by atom.
  std::span<const ValueIndex> operands(NodeIndex node) const { return operands_[node]; }
  std::span<const ValueIndex> results(NodeIndex node) const { return results_[node]; }
  /// Those that a repetition of the node finds and leaves: without what the node has aside.
  std::span<const ValueIndex> operandsAgain(NodeIndex node) const { return operandsAgain_[node]; }
  std::span<const ValueIndex> resultsAgain(NodeIndex node) const { return resultsAgain_[node]; }
  /// Ascending.
  std::vector<AtomIndex> atomsIn(const Access &access) const;
  /// What the atom holds before the step.
  ValueIndex first(AtomIndex atom) const { return first_[atom]; }

  /// Whether the node is pure, and a repetition of it leaves something only in private memory that has no value between
  /// steps.
  bool mayRunAgain(NodeIndex node) const { return mayRunAgain_[node]; }

  std::uint64_t bytes(ValueIndex value) const { return atoms_[values_[value].atom].range.size; }
  BufferIndex buffer(ValueIndex value) const { return atoms_[values_[value].atom].buffer; }

private:
  void findAtoms(const Description &captured);

  IndexedVector<AtomIndex, Atom> atoms_;
  std::vector<std::vector<AtomIndex>> atomsOf_; ///< by buffer, ascending
  IndexedVector<ValueIndex, Value> values_;
  IndexedVector<AtomIndex, ValueIndex> first_;
  std::vector<std::vector<ValueIndex>> operands_, results_;           ///< by node
  std::vector<std::vector<ValueIndex>> operandsAgain_, resultsAgain_; ///< by node
  std::vector<bool> mayRunAgain_;                                     ///< by node
};

} // namespace pumpgraph
