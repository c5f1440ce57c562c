// SPDX-License-Identifier: Apache-2.0
/// \file
/// A proposer of gaps by price, and of the boundary with them (docs/design/planner.md, "The proposers").
#pragma once

#include "passes/plan/search/Search.h"

namespace pumpgraph {

/// Prices the link as the best plan leaves it, chooses gaps by that, and tries again with pieces that had to leave all
/// the same choosing their frames first; some rounds, each by the best plan so far.
void proposeGapsByPrice(Search &search);

} // namespace pumpgraph
