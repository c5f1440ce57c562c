// SPDX-License-Identifier: Apache-2.0
/// \file
/// A summary for the report tests, small enough to know every figure of.
#pragma once

#include "passes/report/Summary.h"

namespace pumpgraph::test {

/// Four kernels of 100 us each over three pages of 2 MiB, in a budget of two: "a" leaves after its first use and comes
/// back for its last one, which waits for it. Every figure is filled in by hand.
Summary handMadeSummary();
/// The same, but that `c` is always in host memory.
Summary hostingSummary();

/// What it would say of the four kernels if they were an optimizer.
RepeatedSweeps handMadeSweeps();

} // namespace pumpgraph::test
