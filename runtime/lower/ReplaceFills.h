// SPDX-License-Identifier: Apache-2.0
/// \file
/// Replaces a graph's memset nodes by kernels.
#pragma once

#include "runtime/capture/LiftGraph.h"
#include "runtime/lower/GraphEditor.h"
#include "runtime/memory/FillKernel.h"

namespace pumpgraph::runtime {

/// Whether some nodes may run side by side.
bool hasBranches(const LiftedGraph &graph);

/// Puts a kernel in the place of every memset node on `addresses`, in the graph that `editor` edits and in `lifted`,
/// which is that graph. For graphs with branches where KernelQueues are many: with memset nodes there, copies beside
/// the graph take a tenth longer from its first node to its last (docs/results/probes.md). And for plans with hosted
/// pages: a kernel can write them, and nobody promises that of memset nodes.
Status replaceFills(GraphEditor &editor, const Driver &driver, const FillKernel &kernel, const AddressSpace &addresses,
                    LiftedGraph &lifted);

/// Whether a node of a planned or lowered description uses pages that are hosted.
bool hasHostedOperand(const Description &description, const Node &node);

/// Fails where a memset node would have to write hosted pages. `handles`: by captured node.
Status checkFills(const Driver &driver, const std::vector<CUgraphNode> &handles, const Description &lowered);

} // namespace pumpgraph::runtime
