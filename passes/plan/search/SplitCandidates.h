// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which buffers are worth splitting, and where (docs/design/planner.md, "Variants of a step").
#pragma once

#include "passes/analysis/Machine.h"
#include "passes/analysis/Timeline.h"
#include "passes/plan/search/SplitStep.h"

#include <vector>

namespace pumpgraph {

/// What whole buffers may do after long idle times so that less has to be hosted. `timeline` is the step's; `frames`
/// are those of private buffers.
std::vector<Split> splitsToSpareHosting(const Description &step, const Timeline &timeline, std::uint64_t frames,
                                        const Machine &machine);

/// By node: private pages that it touches beyond `frames`. One that touches more is wide.
std::vector<std::uint64_t> excessPages(const Timeline &timeline, std::uint64_t frames);

/// What a wide node reaches of what is hosted in `planned`, a plan of the step with `splits`, may move between it and
/// the node that reaches it before or after: a split for each such pair that takes `leastUs` at least for what it
/// reaches, some of those that take most. `excess`: excessPages() of the step. The linear bound counts on it that
/// nothing moves elsewhere unless it is idle for long, or beside a wide node (tools/pump-graph-bench/lp_step.py).
std::vector<Split> splitsOfHosted(const Description &step, const Description &planned, const std::vector<Split> &splits,
                                  const std::vector<std::uint64_t> &excess, const Machine &machine, double leastUs);

/// Both together, a split for each buffer and node. Of `more`, those of buffers that cannot be split are left out.
std::vector<Split> joinedSplits(const Description &step, const std::vector<Split> &splits,
                                const std::vector<Split> &more);

/// How slowly nodes reach hosted pages is known once they have, and less of the same is faster for certain. So how much
/// longer than predicted `split` may take for what nodes reach in it, at whatever address, and not in `step`.
double doubtUs(const Description &split, const Description &step, const Machine &machine);

} // namespace pumpgraph
