// SPDX-License-Identifier: Apache-2.0
/// \file
/// Fewer transfers of the same pages: each copy costs something whatever its size.
#pragma once

#include "passes/plan/schedule/Schedule.h"

#include <cstddef>
#include <cstdint>

namespace pumpgraph {

struct JoinLimits {
  std::uint32_t reach = 0;     ///< most others between two on their lane
  std::uint32_t mostPages = 0; ///< of what comes of it
};

/// Makes one transfer of those that lie side by side in a buffer and follow each other on their lane, where the later
/// one could have begun with the first.
Draft joinTransfers(const Draft &draft, const Schedule &schedule, const JoinLimits &limits);

struct RowLimits {
  std::size_t reach = 0;       ///< most copies of a lane back that may still get rows
  std::uint64_t mostBytes = 0; ///< of all rows of a copy
};

/// Makes one copy of several rows of transfers of one size that follow each other closely on their lane, where the
/// later ones could have begun with the first.
Draft joinRows(const Description &captured, const Draft &draft, const Schedule &schedule, const RowLimits &limits);

} // namespace pumpgraph
