// SPDX-License-Identifier: Apache-2.0
/// \file
/// What becomes of the transfers of the best plan once nothing else is changed: they are joined, give way, and become
/// rows of common copies.
#pragma once

#include "passes/plan/search/Search.h"

namespace pumpgraph {

/// Fewer, larger transfers: the farther a transfer is looked for, the more find each other, and the more are moved away
/// from where they were wanted.
void proposeJoining(Search &search);

/// Transfers that have time give way to those that have none.
void proposeDeferral(Search &search);

/// Small transfers become rows of common copies. Not for managed memory.
void proposeRows(Search &search);

} // namespace pumpgraph
