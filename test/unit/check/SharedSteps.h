// SPDX-License-Identifier: Apache-2.0
/// \file
/// Two steps of one session: pairs that share buffers, the boundary that the first one's plan leaves to the second, and
/// their replays in turns as one step.
#pragma once

#include "passes/analysis/Timeline.h"
#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pumpgraph::test {

/// Both have the same buffers at the same positions, but a node touches less of them in either than in the random step
/// that they are made of. Buffers without a value between steps are not the same memory in both.
struct StepPair {
  Description first;
  Description second;
  std::vector<bool> isNew; ///< by buffer: the first step does not know it
};

StepPair randomPair(std::uint64_t seed);

/// What the second step must keep of the plan of the first.
Description boundaryAfter(const StepPair &pair, const Description &firstPlan);

/// What each node of the second step uses at once of the values that the first one knows.
ApartPages usedTogether(const StepPair &pair);

/// Two pages of a group with one frame, in words; nothing if there are none.
std::optional<std::string> notApart(const Description &planned, const ApartPages &apart);

/// Replays, one after another, as one step: each of `steps` is either of the two. All of them captured, or all planned.
Description inTurns(const std::vector<const Description *> &steps, const Description &first,
                    const std::vector<bool> &isNew);

} // namespace pumpgraph::test
