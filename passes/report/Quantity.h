// SPDX-License-Identifier: Apache-2.0
/// \file
/// Quantities as people type them: sizes with a unit, shares of the peak, bandwidths.
#pragma once

#include <tl/expected.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pumpgraph {

/// Errors are sentences for the user, lower case: what is wrong, and what would be right.
template <typename T> using Parsed = tl::expected<T, std::string>;

/// "8GiB", "1.5 GB", "4096": bytes. Units are B, KiB, MiB, GiB, TiB (powers of 1024) and KB, MB, GB, TB (powers of
/// 1000), in any case; a number alone is bytes.
Parsed<std::uint64_t> parseBytes(std::string_view text);

/// A budget: bytes, or a share of something known only later.
struct Budget {
  std::uint64_t bytes = 0;
  std::optional<double> percent;

  std::uint64_t of(std::uint64_t peakBytes) const;
};

/// Bytes as above, or "50%".
Parsed<Budget> parseBudget(std::string_view text);

/// "55" or "55GB/s": bytes per second. More than 0.
Parsed<double> parseBandwidth(std::string_view text);

} // namespace pumpgraph
