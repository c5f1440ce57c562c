// SPDX-License-Identifier: Apache-2.0
/// \file
/// The trace of the planner's search, row by row and by proposer.
#pragma once

#include "passes/plan/SearchTrace.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pumpgraph {

/// The attempts of one proposer.
struct ProposerTotals {
  std::string_view proposer;
  std::uint64_t tried = 0;
  std::uint64_t kept = 0;
  double savedUs = 0; ///< of step time, by those that were kept; the first plan saves nothing
  double effort = 0;  ///< the share of that of all attempts
};

/// In the order of the first attempts.
std::vector<ProposerTotals> byProposer(const SearchTrace &trace);

/// A line of names, then a line for each row. A time that is missing is empty.
std::string toCsv(const SearchTrace &trace);

} // namespace pumpgraph
