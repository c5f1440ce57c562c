// SPDX-License-Identifier: Apache-2.0
/// \file
/// Lowering of a plan to what the managed-memory backend can do: operations of an agent (docs/design/managed.md).
#pragma once

#include "passes/analysis/Backend.h"
#include "passes/analysis/Machine.h"
#include "passes/analysis/Prediction.h"
#include "passes/lower/InsertAdvise.h"
#include "pumpgraph/graph/Description.h"

namespace pumpgraph {

/// When pages come back. What is not Ahead is there to be compared with.
enum class Prefetching : std::uint8_t {
  Ahead = 0,    ///< as soon as there is room
  AtLaunch = 1, ///< when the node that needs them could start
  None = 2      ///< by faults
};

struct ManagedOptions {
  Machine machine;
  Prefetching prefetching = Prefetching::Ahead;
  /// Whether every access is known, so that what no node touches any more is dead. If not, nothing is discarded.
  bool mayDiscard = true;
  /// Whether nobody waits for a prefetch that is predicted to be there long before. Should it be late all the same, its
  /// pages come by faults, perhaps before others have made room.
  bool hints = true;
  AdviceOptions advice = {}; ///< nothing is read mostly unless every access is known
  double safeUs = 1000;      ///< how long before, at the least; twice the prefetch's own time where that is more
};

/// Gives the captured step one prefetch, evict or discard node for each operation of the agent, and one advise node for
/// each range that the driver is told about before the first replay. Captured nodes and edges stay as they are.
///
/// Of the plan it takes who is in which frame at which time. Managed memory has one copy of every page: what the plan
/// gives up because its host copy is good is evicted here, what it gives up because it is dead is discarded. A plan
/// that moves nothing is lowered to nothing.
///
/// An edge from a captured node to an operation: the graph asks for the operation once the node has completed. From an
/// operation to a captured node: the node waits for it. Between operations: the second is not asked for before the
/// first, and does not start beside it. A prefetch without an edge to a captured node is a hint.
Description lowerManaged(const Description &captured, const Description &planned, const ManagedOptions &options);

/// The captured step within a planned or lowered one, with the edges that the plan has added between captured nodes.
Description withoutPlan(const Description &planned);

} // namespace pumpgraph
