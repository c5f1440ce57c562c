// SPDX-License-Identifier: Apache-2.0
/// \file
/// Predicts from the plan whether the driver has to page while a step on managed memory runs.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

/// Memory that the step may touch, outside its plan.
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
