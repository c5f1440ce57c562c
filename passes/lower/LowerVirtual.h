// SPDX-License-Identifier: Apache-2.0
/// \file
/// Lowering of a plan to what the virtual-memory backend can do: copies and edges.
#pragma once

#include "pumpgraph/graph/Description.h"

namespace pumpgraph {

/// Turns every evict and prefetch into a copy with a place in the pinned pool, replaces discards by the edges they
/// stood for, joins neighbouring transfers, demotes programmatic edges (to Full) where a hand-over needs completion,
/// and drops added edges that full-completion paths already imply. Captured nodes are never dropped.
///
/// A step with copies consists of few, long chains afterwards: all its programmatic edges are demoted, captured edges
/// that others imply are dropped, and copies of one direction follow one another by edges of their own.
Description lowerVirtual(const Description &planned);

} // namespace pumpgraph
