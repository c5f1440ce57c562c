// SPDX-License-Identifier: Apache-2.0
/// \file
/// What nobody has written yet has no value that could be read.
#pragma once

#include "pumpgraph/graph/Description.h"

namespace pumpgraph {

/// Of a captured step. An access that may write, to bytes that have no value at the start of the step, and that
/// comes before all others to any of them, by edges of either kind, overwrites its range (Evidence::Allocated): for
/// what it does not write there nobody may look at. So a repetition needs nothing of what was there before.
void claimFirstTouches(Description &captured);

} // namespace pumpgraph
