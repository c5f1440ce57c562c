// SPDX-License-Identifier: Apache-2.0
/// \file
/// The rules that need no order of execution: well-formedness, exclusive buffers, budget, boundary, host places.
#pragma once

#include "passes/check/Report.h"
#include "pumpgraph/graph/Description.h"

#include <initializer_list>

namespace pumpgraph::check {

/// The step is of one of these stages: what is proved of it is meant by its nodes.
void checkStage(const Description &description, std::initializer_list<Stage> stages, Report &report);

/// Indices, ranges and sizes make sense. The other checks rely on it: run them only when nothing was found.
void checkForm(const Description &description, Report &report);

/// Rule 4, the part that does not depend on what runs: one resident page a frame, resident pages have frames, private
/// live-in buffers are live-out.
void checkBoundaryState(const Description &description, Report &report);

/// Rule 5.
void checkExclusiveBuffers(const Description &description, Report &report);

/// Rule 6.
void checkBudget(const Description &description, Report &report);

/// Rule 7.
void checkHostPlaces(const Description &description, Report &report);

/// Rule 10.
void checkRows(const Description &description, Report &report);

} // namespace pumpgraph::check
