// SPDX-License-Identifier: Apache-2.0
/// \file
/// Lists of byte ranges, ascending and disjoint.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <vector>

namespace pumpgraph {

/// Adds a range that begins where the last one ends or later; neighbours become one.
inline void append(std::vector<Range> &ranges, const Range &range) {
  if (!ranges.empty() && ranges.back().end() == range.offset)
    ranges.back().size += range.size;
  else
    ranges.push_back(range);
}

/// What is in `ranges` or in `range`, neighbours as one.
std::vector<Range> with(const std::vector<Range> &ranges, const Range &range);
/// What is in `ranges` but not in `range`.
std::vector<Range> without(const std::vector<Range> &ranges, const Range &range);

} // namespace pumpgraph
