// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a search for what stays in host memory chooses from: groups of buffers, and smaller and smaller parts of them.
#pragma once

#include "passes/pipeline/HostingSearch.h"
#include "passes/plan/PlanResidency.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pumpgraph {

/// What stays in host memory together or not at all, in the order in which it is first used.
using HostingGroup = std::vector<BufferPart>;

/// Candidates, and those among them that were chosen.
struct HostingGroups {
  std::vector<HostingGroup> groups;
  HostedSet chosen;
};

/// Of these buffers, ascending, those that can be hosted as a whole. A group has buffers that are used alike: of one
/// size, with a value before the step or after it or not, and read and written as often in the same order. Of more
/// groups than `most` those with most bytes.
std::vector<HostingGroup> groupsOfBuffers(const Description &step, const std::vector<BufferIndex> &buffers,
                                          std::size_t most);

/// Each group in two: those that are used first, and the others; of a single buffer, or a part of one, the front and
/// the back, if neither has less than `leastBytes`. Of what is chosen both are. No more than `most` groups: of those
/// that come last in `whole` some stay as they are.
HostingGroups inHalves(const HostingGroups &whole, std::uint64_t pageBytes, std::uint64_t leastBytes, std::size_t most);

/// As many parts of each buffer as the set has, from its front on. What a node reads of one operand and writes of
/// another it moves at the same time if both are in host memory at the same place, and what is in one piece leaves and
/// comes back in one. The parts of a buffer follow each other in `groups`.
HostedSet fromTheFront(const std::vector<HostingGroup> &groups, HostedSet set);

} // namespace pumpgraph
