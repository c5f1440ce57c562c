// SPDX-License-Identifier: Apache-2.0
/// \file
/// The proposers of a search that need nothing but its best plan (docs/design/planner.md, "The proposers").
#pragma once

#include "passes/plan/search/Search.h"

namespace pumpgraph {

/// Prices the link as the best plan leaves it, chooses gaps and the boundary by that, and tries again with pieces that
/// had to leave all the same choosing their frames first; some rounds, each by the best plan so far.
void proposeGapsByPrice(Search &search);

/// Lets some pieces choose their frames anew, and when they leave them, while all others keep theirs. Until the search
/// is spent, or rounds come to nothing.
void proposeNeighbours(Search &search);

/// Fewer, larger transfers: the farther a transfer is looked for, the more find each other, and the more are moved away
/// from where they were wanted.
void proposeJoining(Search &search);

/// Transfers that have time give way to those that have none.
void proposeDeferral(Search &search);

/// Small transfers become rows of common copies. Not for managed memory.
void proposeRows(Search &search);

} // namespace pumpgraph
