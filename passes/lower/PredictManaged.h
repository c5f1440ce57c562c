// SPDX-License-Identifier: Apache-2.0
/// \file
/// The predicted time of a step that is lowered for managed memory, where one replay goes on beside the next.
#pragma once

#include "passes/analysis/Machine.h"
#include "passes/analysis/Prediction.h"
#include "pumpgraph/graph/Description.h"

namespace pumpgraph {

/// What a replay of the lowered step takes that follows another one of it. Nobody waits for the last evictions but the
/// prefetches of the next replay that need their room. Pages of read-mostly ranges leave the device for nothing, and
/// pages without a value come for nothing. Nodes that end after the step's total do so beside the next replay.
Prediction predictManaged(const Description &lowered, const Machine &machine);

/// Whether a prefetch moves no bytes: what it brings was discarded, and nobody reads it before it is overwritten.
bool bringsNothing(const Description &lowered, NodeIndex prefetch);

} // namespace pumpgraph
