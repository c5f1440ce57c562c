// SPDX-License-Identifier: Apache-2.0
/// \file
/// Node times where none were measured.
#pragma once

#include "passes/analysis/Machine.h"
#include "pumpgraph/graph/Description.h"

namespace pumpgraph {

/// Gives every captured node of unknown cost the time that its bytes need, or its declared arithmetic if that takes
/// longer, plus what a node costs whatever it does. Where more than 32 accesses may touch the whole of one range, and
/// nobody has proved how much they do, they are taken to pass over it 32 times together. Known costs stay. Residency
/// nodes and lowered copies have no cost of their own: predict() times them by the link. Returns how many were filled
/// in.
std::size_t estimateCosts(Description &description, const Machine &machine);

/// Takes the known node times of `saved`, the same step at another time, for nodes whose position in the captured graph
/// and whose name agree. They replace what `description` had. Returns how many were taken.
std::size_t mergeCosts(Description &description, const Description &saved);

} // namespace pumpgraph
