// SPDX-License-Identifier: Apache-2.0
/// \file
/// Whether the driver will have to page while a step on managed memory runs, as far as its plan tells.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

/// Memory that the step may touch and its plan says nothing of.
struct Unplanned {
  std::string name;
  std::uint64_t bytes = 0;
};

struct ManagedRoom {
  std::uint64_t budgetBytes = 0;
  std::uint64_t deviceBytes = 0; ///< that were free when the session was created
};

/// Sentences with the numbers and names; none where all that may be touched at once has room.
std::vector<std::string> foreseeThrashing(const Description &lowered, std::vector<Unplanned> unplanned,
                                          const ManagedRoom &room);

} // namespace pumpgraph::runtime
