// SPDX-License-Identifier: Apache-2.0
/// \file
/// Set operations on lists of byte ranges, ascending and disjoint.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <ranges>
#include <vector>

namespace pumpgraph {

/// The indices of the pages that have bytes of the range.
inline auto pagesIn(const Range &range, std::uint64_t pageBytes) {
  return std::views::iota(range.offset / pageBytes, (range.end() + pageBytes - 1) / pageBytes);
}

/// Adds a range that begins where the last one ends or later; neighbours become one.
inline void append(std::vector<Range> &ranges, const Range &range) {
  if (!ranges.empty() && ranges.back().end() == range.offset)
    ranges.back().size += range.size;
  else
    ranges.push_back(range);
}

/// The union of `ranges` and `range`; neighbours become one.
std::vector<Range> with(const std::vector<Range> &ranges, const Range &range);
/// The difference of `ranges` and `range`.
std::vector<Range> without(const std::vector<Range> &ranges, const Range &range);

} // namespace pumpgraph
