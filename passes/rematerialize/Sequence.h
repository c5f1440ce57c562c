// SPDX-License-Identifier: Apache-2.0
/// \file
/// A step's nodes with repetitions between them, for a choice of values to be made again.
#pragma once

#include "passes/rematerialize/StepValues.h"

#include <optional>
#include <vector>

namespace pumpgraph {

/// A captured node at its place, or run again before the captured node that comes next.
struct Turn {
  NodeIndex node = 0;
  bool again = false;

  friend bool operator==(const Turn &, const Turn &) = default;
};

/// What becomes of values, by value.
struct Lifetimes {
  /// The reader after which the value is given up although others follow, which have it made again; noMaker: none.
  IndexedVector<ValueIndex, NodeIndex> droppedAfter;
  /// Stays for repetitions that read it, after the last captured reader.
  IndexedVector<ValueIndex, bool> kept;

  explicit Lifetimes(const StepValues &values)
      : droppedAfter(values.values().size(), noMaker), kept(values.values().size(), false) {}
};

/// The nodes in the order of capture. Before a node that finds an operand given up, or written over, stand the
/// repetitions that make it again, and before these what they need in turn. Nothing if that cannot be: an operand's
/// maker may not run again, or would write over what others still need; or if it takes too many repetitions. What
/// cannot be made again stays for those that read it until it is written over, also if it was to be given up. What
/// never had a value is found in any.
std::optional<std::vector<Turn>> sequenceOf(const Description &captured, const StepValues &values,
                                            const Lifetimes &lifetimes);

/// The captured step with the repetitions of a sequence. A repetition waits for what the node before which it stands
/// waits for, and for all that it conflicts with; that node waits for it.
Description withRepetitions(const Description &captured, const std::vector<Turn> &turns);

} // namespace pumpgraph
