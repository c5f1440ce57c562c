// SPDX-License-Identifier: Apache-2.0
/// \file
/// Steps for the report tests: one large enough to look like training, one small enough to know every figure of.
#pragma once

#include "passes/report/Summary.h"

namespace pumpgraph::test {

/// Forward, backward and optimizer of `layers` layers with one kernel launch per operator, as a capture would have it:
/// weights and optimizer state live across steps, activations are written forward and read backward.
Description trainingStep(int layers);

/// Four kernels of 100 us each over three pages of 2 MiB, in a budget of two: "a" leaves after its first use and comes
/// back for its last one, which waits for it. Every figure is filled in by hand.
Summary handMadeSummary();
/// The same, but that `c` is always in host memory.
Summary hostingSummary();

/// What it would say of the four kernels if they were an optimizer.
RepeatedSweeps handMadeSweeps();

} // namespace pumpgraph::test
