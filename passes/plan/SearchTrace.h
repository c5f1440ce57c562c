// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a search has tried, and what came of it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace pumpgraph {

struct TraceRow {
  std::string_view proposer;    ///< its name, for ever
  std::uint64_t pieceBytes = 0; ///< the most of a piece of the search
  double beforeUs = 0;          ///< the best step so far, as scheduled, microseconds; 0: none
  double afterUs = 0;           ///< the step with what was tried; 0: no frames were found
  std::uint64_t effort = 0;     ///< as in Draft
  bool kept = false;            ///< it is the best now
};
using SearchTrace = std::vector<TraceRow>;

} // namespace pumpgraph
