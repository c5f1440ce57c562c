// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which buffers should go on at another address (docs/planner.md).
#pragma once

#include "passes/plan/Continuations.h"
#include "passes/plan/PlanResidency.h"

#include <vector>

namespace pumpgraph {

/// The idle times after which buffers may go on at another address to make a better plan than `planned`, that of the
/// step as it is. `timeline` is the step's; `frames` are those of private buffers.
std::vector<IdleTime> worthRenaming(const Description &step, const Description &planned, const Timeline &timeline,
                                    const PlanOptions &options, std::uint64_t frames);

/// Whether hardly anything is hosted in `renamed` that is not in `step`: how slowly nodes reach other pages nobody
/// knows, and less of the same is faster for certain. `renamed` has the buffers of `step`, and others after them.
bool hostsNothingElse(const Description &renamed, const Description &step);

} // namespace pumpgraph
