// SPDX-License-Identifier: Apache-2.0
/// \file
/// Writes a lowered description into the driver's graph, and lifts the graph back to a description for the checker.
#pragma once

#include "runtime/capture/DescribeStep.h"
#include "runtime/lower/GraphEditor.h"
#include "runtime/lower/Residence.h"

#include <unordered_map>

namespace pumpgraph::runtime {

/// What lowerGraph() added for repetitions: the lowered node that each is.
using Repetitions = std::unordered_map<CUgraphNode, NodeIndex>;

/// Adds the lowered copies and repetitions to the captured graph, adds the edges it lacks, demotes those that have to
/// wait for completion, removes those that `lowered` has no more. The captured nodes stay as they are, but for
/// addresses among the parameters of kernels that have a buffer which continues another: where they led into that one,
/// they lead to the same place in this one. `captured` is the graph as it was lifted.
///
/// An edge between a captured node and a copy, or copies of different directions, leads over a *relay*, an empty node:
/// without it the driver goes on with a chain of kernels on the stream of a copy that they waited for, or the other way
/// round, and needs many streams for what are three.
///
/// A repetition is a clone of the node that it repeats, which may have got other addresses before: the clone has those
/// of its own place, and `step.asideMemory` where its original has something aside. It stands among the captured nodes,
/// so no relay leads to it from them.
///
/// Copies that are `joined` become one node, whose rows they are. `blocks`: of the lowered buffers.
Expected<Repetitions> lowerGraph(GraphEditor &editor, const Description &lowered, const CapturedStep &step,
                                 const LiftedGraph &captured, const std::vector<BlockId> &blocks,
                                 const Residence &residence);

/// A step in the driver: its description, and the graph's nodes in the same order. The rows of a copy are consecutive
/// nodes of the description, and one node of the graph.
struct RewrittenStep {
  Description description;
  std::vector<CUgraphNode> nodes; ///< by NodeIndex
};

/// Describes the rewritten graph, `lifted`, from what the driver says of it and from the frames in force. Of `lowered`
/// it takes names and what the compiler found out about accesses, after finding that node for node the parameters are
/// those of `captured`, the graph as it was lifted first, but for the addresses that lowerGraph() changes. Of a
/// repetition they are those of the node that it repeats, and the driver tells no other difference between the two.
/// `blocks`: of the lowered buffers. Relays are not described: what waits for one waits for the node before it.
Expected<RewrittenStep> describeRewritten(const Driver &driver, const LiftedGraph &lifted, const LiftedGraph &captured,
                                          const CapturedStep &step, const Description &lowered,
                                          const Repetitions &repetitions, const std::vector<BlockId> &blocks,
                                          const Residence &residence);

/// The captured description with the accesses as the compiler annotated them in `lowered`, all of them to the captured
/// buffers.
Description withAnnotations(const Description &captured, const Description &lowered);

} // namespace pumpgraph::runtime
