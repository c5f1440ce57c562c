// SPDX-License-Identifier: Apache-2.0
/// \file
/// A proposer that lets some pieces choose their frames anew, and when they leave them, while all others keep theirs
/// (docs/design/planner.md, "The proposers").
#pragma once

#include "passes/plan/search/Search.h"

namespace pumpgraph {

/// Until the search is spent, or rounds come to nothing. The search has a plan.
void proposeNeighbours(Search &search);

} // namespace pumpgraph
