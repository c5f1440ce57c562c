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

/// How slowly nodes reach hosted pages is known once they have, and less of the same is faster for certain. So how much
/// longer than predicted `renamed` may take for what nodes reach in it, at whatever address, and not in `step`.
double doubtUs(const Description &renamed, const Description &step, const Machine &machine);

} // namespace pumpgraph
