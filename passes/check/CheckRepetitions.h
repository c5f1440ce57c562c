// SPDX-License-Identifier: Apache-2.0
/// \file
/// Rule 11: what runs again leaves the values that the captured step has.
#pragma once

#include "passes/check/Report.h"
#include "pumpgraph/graph/Description.h"

namespace pumpgraph::check {

/// Rule 11. The description is well formed.
void checkRepetitions(const Description &description, Report &report);

} // namespace pumpgraph::check
