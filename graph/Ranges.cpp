// SPDX-License-Identifier: Apache-2.0
#include "pumpgraph/graph/Ranges.h"

#include <algorithm>

namespace pumpgraph {

std::vector<Range> with(const std::vector<Range> &ranges, const Range &range) {
  const std::vector<Range> others = without(ranges, range);
  const auto next =
      std::find_if(others.begin(), others.end(), [&](const Range &other) { return other.offset > range.offset; });
  std::vector<Range> all(others.begin(), next);
  append(all, range);
  for (auto later = next; later != others.end(); ++later)
    append(all, *later);
  return all;
}

std::vector<Range> without(const std::vector<Range> &ranges, const Range &range) {
  std::vector<Range> rest;
  for (const Range &other : ranges) {
    const std::uint64_t begin = std::min(std::max(range.offset, other.offset), other.end());
    const std::uint64_t end = std::max(std::min(range.end(), other.end()), begin);
    if (begin > other.offset)
      rest.push_back({other.offset, begin - other.offset});
    if (end < other.end())
      rest.push_back({end, other.end() - end});
  }
  return rest;
}

} // namespace pumpgraph
