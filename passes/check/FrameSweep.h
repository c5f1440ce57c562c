// SPDX-License-Identifier: Apache-2.0
/// \file
/// The rules about order and values: transfers do not race, frames are handed over in order, every access finds the
/// value of the last write, the end state is the boundary state (rules 1 to 4 of docs/design/plan-correctness.md).
#pragma once

#include "passes/check/Report.h"
#include "pumpgraph/graph/Description.h"

namespace pumpgraph::check {

/// Needs a description in which checkForm finds nothing. Pages without a frame and exclusive buffers are skipped: what
/// there is to say about them does not depend on order.
void checkFrames(const Description &description, Report &report);

} // namespace pumpgraph::check
