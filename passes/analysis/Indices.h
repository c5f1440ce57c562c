// SPDX-License-Identifier: Apache-2.0
/// \file
/// The indices of an IndexedVector, for loops that look things up in several.
#pragma once

#include "passes/analysis/Index.h"

#include <cstdint>
#include <ranges>

namespace pumpgraph {

template <typename Index, typename Element> auto indicesOf(const IndexedVector<Index, Element> &vector) {
  return std::views::iota(std::uint32_t{0}, static_cast<std::uint32_t>(vector.size())) |
         std::views::transform([](std::uint32_t position) { return static_cast<Index>(position); });
}

} // namespace pumpgraph
