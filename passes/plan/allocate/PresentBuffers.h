// SPDX-License-Identifier: Apache-2.0
/// \file
/// Present buffers are on the device between replays. For the planner that is a node.
#pragma once

#include "pumpgraph/graph/Description.h"

namespace pumpgraph {

/// The step with one node more at its end, without which others keep their positions: it stands for whatever may read
/// and write present buffers between replays. The step itself, if there are none. Not for a plan.
Description withUseBetweenReplays(Description step);

/// The plan of that step without the node. What came before it still comes before what came after it.
Description withoutUseBetweenReplays(Description planned);

} // namespace pumpgraph
