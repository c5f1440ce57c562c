// SPDX-License-Identifier: Apache-2.0
/// \file
/// Writes a step lowered for managed memory into the driver's graph, and lifts the graph back to a description for the
/// checker.
#pragma once

#include "runtime/agent/Operation.h"
#include "runtime/capture/DescribeStep.h"
#include "runtime/lower/GraphEditor.h"

namespace pumpgraph::runtime {

/// The operations of a lowered step, in the order of its nodes. Besides what its edges say, a prefetch does not start
/// beside what leaves its frames later in the step: the replay before may have asked for that.
std::vector<Operation> operationsOf(const Description &lowered);

/// Adds nodes and edges to the captured graph, and takes none away. A *signal* asks for operations, a *wait* waits for
/// some. Where the captured nodes before and after are a chain, they become part of it, so that the driver needs no
/// more streams. `words`: the device's address of the first operation's words.
Status addOperations(GraphEditor &editor, const Description &lowered, const CapturedStep &step, CUdeviceptr words);

/// Describes the rewritten graph, `lifted`, from what the driver says of it. Of `lowered` it takes the operations and
/// what the compiler found out about accesses, after finding that node for node the parameters are those of `captured`,
/// the graph as it was lifted first. PUMPGRAPH_INTERNAL if a word is missing, or not as it should be.
Expected<Description> describeManaged(const Driver &driver, const LiftedGraph &lifted, const LiftedGraph &captured,
                                      const CapturedStep &step, const Description &lowered, CUdeviceptr words);

} // namespace pumpgraph::runtime
