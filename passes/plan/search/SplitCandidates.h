// SPDX-License-Identifier: Apache-2.0
/// \file
/// Which buffers are worth splitting, and where (docs/design/planner.md, "Variants of a step").
#pragma once

#include "passes/analysis/Machine.h"
#include "passes/analysis/Timeline.h"
#include "passes/plan/Workers.h"
#include "passes/plan/search/SplitStep.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace pumpgraph {

/// By buffer: whether it can be split. What is split already is not split again.
std::vector<bool> canBeSplit(const Description &step);

/// Of renamable buffers without hosted pages, by buffer, then node: a split of all of it after each time in which it is
/// idle for `leastShare` of the step's time in memory.
std::vector<Split> idleTimes(const Description &step, const Timeline &timeline, double leastShare);

/// What some splits come to: a plan, or a step with what is hosted, and what that costs.
struct TriedSplits {
  Description step;
  double us = 0;
};
/// Nothing: there is no plan.
using TrySplits = std::function<Job<std::optional<TriedSplits>>(const std::vector<Split> &)>;
/// What may come on top of `chosen`, which came to `step`: each is tried alone, and has to gain `leastUs`.
using MoreSplits = std::function<std::vector<std::vector<Split>>(const Description &step,
                                                                 const std::vector<Split> &chosen, double leastUs)>;

/// `chosen`, and more where that is faster: always what gains most, and then the next.
std::vector<Split> addSplits(std::vector<Split> chosen, const Machine &machine, const TrySplits &tryWith,
                             const MoreSplits &more);

/// What whole buffers may do after long idle times so that less has to be hosted, by the prices of that. `timeline` is
/// the step's; `frames` are those of private buffers.
std::vector<Split> splitsToSpareHosting(const Description &step, const Timeline &timeline, std::uint64_t frames,
                                        const Machine &machine);

/// By node: private pages that it touches beyond `frames`. One that touches more is wide.
std::vector<std::uint64_t> excessPages(const Timeline &timeline, std::uint64_t frames);

/// What a wide node reaches of what is hosted in `planned`, a plan of the step with `splits`, may move between it and
/// the node that reaches it before or after: a split for each such pair that takes `leastUs` at least for what it
/// reaches, some of those that take most. `excess`: excessPages() of the step. The linear bound counts on it that
/// nothing moves elsewhere unless it is idle for long, or beside a wide node (tools/pump-graph-bench/lp_step.py).
std::vector<std::vector<Split>> splitsOfHosted(const Description &step, const Description &planned,
                                               const std::vector<Split> &splits,
                                               const std::vector<std::uint64_t> &excess, const Machine &machine,
                                               double leastUs);

/// Both together, a split for each buffer and node. Of `more`, those of buffers that cannot be split are left out.
std::vector<Split> joinedSplits(const Description &step, const std::vector<Split> &splits,
                                const std::vector<Split> &more);

/// How slowly nodes reach hosted pages is known once they have, and less of the same is faster for certain. So how much
/// longer than predicted `split` may take for what nodes reach in it, at whatever address, and not in `step`.
double doubtUs(const Description &split, const Description &step, const Machine &machine);

} // namespace pumpgraph
