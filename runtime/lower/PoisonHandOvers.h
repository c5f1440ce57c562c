// SPDX-License-Identifier: Apache-2.0
/// \file
/// Poisons frames between two owners, so that validation sees a lost value.
#pragma once

#include "pumpgraph/graph/Description.h"
#include "runtime/lower/GraphEditor.h"

namespace pumpgraph::runtime {

/// Wherever a frame goes from one page to another without being filled from the host, fills it with 0xFF in between:
/// after the last event of the old tenant, before every event of the new one. `nodes` are the graph's, by the index
/// they have in `rewritten`; null for a node that the graph does not have. Returns how many fills were added.
Expected<std::uint64_t> poisonHandOvers(GraphEditor &editor, const Description &rewritten,
                                        const std::vector<CUgraphNode> &nodes);

} // namespace pumpgraph::runtime
