// SPDX-License-Identifier: Apache-2.0
/// \file
/// A step large enough to look like training.
#pragma once

#include "pumpgraph/graph/Description.h"

namespace pumpgraph::test {

/// Forward, backward and optimizer of `layers` layers with one kernel launch per operator, as a capture would have it:
/// weights and optimizer state live across steps, activations are written forward and read backward.
Description trainingStep(int layers);

} // namespace pumpgraph::test
