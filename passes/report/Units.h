// SPDX-License-Identifier: Apache-2.0
/// \file
/// How reports write quantities: three significant digits and a unit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pumpgraph {

/// "0 B", "512 B", "1.50 KiB", "16.0 GiB".
std::string formatBytes(std::uint64_t bytes);

/// "0 us", "4.20 us", "108 ms", "1.25 s".
std::string formatMicroseconds(double microseconds);

/// "1.08 x"; "-" where the denominator is 0.
std::string formatRatio(double numerator, double denominator);

/// "1,203".
std::string formatCount(std::uint64_t count);

/// "1 node", "1,203 nodes".
std::string formatCount(std::uint64_t count, std::string_view noun);

/// The name as it is printable(), in at most `length` bytes: the middle of a longer one gives way to "...", because
/// kernels differ at both ends.
std::string shorten(std::string_view name, std::size_t length);

} // namespace pumpgraph
