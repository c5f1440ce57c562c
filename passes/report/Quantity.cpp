// SPDX-License-Identifier: Apache-2.0
#include "passes/report/Quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace pumpgraph {

namespace {

struct Number {
  double value;
  std::string_view unit; ///< what follows, without blanks around it
};

struct Unit {
  std::string_view name;
  double bytes;
};

} // namespace

static constexpr std::array units{
    Unit{"b", 1},    Unit{"kib", 0x1p10}, Unit{"mib", 0x1p20}, Unit{"gib", 0x1p30}, Unit{"tib", 0x1p40},
    Unit{"kb", 1e3}, Unit{"mb", 1e6},     Unit{"gb", 1e9},     Unit{"tb", 1e12},    Unit{"", 1},
};

static constexpr std::string_view blanks = " \t";

static std::string_view withoutBlanks(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos)
    return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

static Parsed<Number> parseNumber(std::string_view text) {
  const std::string_view trimmed = withoutBlanks(text);
  double value = 0;
  const auto [end, error] = std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), value);
  if (error != std::errc() || !std::isfinite(value))
    return tl::unexpected(fmt::format("\"{}\" does not begin with a number", text));
  return Number{value, withoutBlanks(trimmed.substr(static_cast<std::size_t>(end - trimmed.data())))};
}

static std::string lowerCase(std::string_view text) {
  std::string result(text);
  for (char &c : result)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

static Parsed<std::uint64_t> toBytes(const Number &number, std::string_view text) {
  const std::string name = lowerCase(number.unit);
  for (const Unit &unit : units) {
    if (unit.name != name)
      continue;
    const double bytes = number.value * unit.bytes;
    if (bytes < 0)
      return tl::unexpected(fmt::format("\"{}\" is less than nothing", text));
    if (bytes >= 0x1p63)
      return tl::unexpected(fmt::format("\"{}\" is more bytes than 64 bits can count", text));
    return static_cast<std::uint64_t>(bytes);
  }
  return tl::unexpected(
      fmt::format("unknown unit \"{}\" in \"{}\"; known: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB", number.unit, text));
}

Parsed<std::uint64_t> parseBytes(std::string_view text) {
  return parseNumber(text).and_then([&](const Number &number) { return toBytes(number, text); });
}

std::uint64_t Budget::of(std::uint64_t peakBytes) const {
  if (!percent)
    return bytes;
  // Not 0, however small the share: a budget of 0 stands for "as much as the step needs".
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(peakBytes) * *percent / 100));
}

Parsed<Budget> parseBudget(std::string_view text) {
  const Parsed<Number> number = parseNumber(text);
  if (!number)
    return tl::unexpected(number.error());
  const std::string noBudget = fmt::format("\"{}\" is no budget: it has to be more than 0", text);
  if (number->value <= 0)
    return tl::unexpected(noBudget);
  if (number->unit == "%")
    return Budget{0, number->value};
  const Parsed<std::uint64_t> bytes = toBytes(*number, text);
  if (!bytes)
    return tl::unexpected(bytes.error());
  if (*bytes == 0)
    return tl::unexpected(noBudget);
  return Budget{*bytes, std::nullopt};
}

Parsed<double> parseBandwidth(std::string_view text) {
  const Parsed<Number> number = parseNumber(text);
  if (!number)
    return tl::unexpected(number.error());
  const std::string unit = lowerCase(number->unit);
  if (!unit.empty() && unit != "gb/s")
    return tl::unexpected(fmt::format("unknown unit \"{}\" in \"{}\"; bandwidths are in GB/s", number->unit, text));
  if (number->value <= 0)
    return tl::unexpected(fmt::format("\"{}\" is no bandwidth: a link has to move more than 0 GB/s", text));
  return number->value * 1e9;
}

} // namespace pumpgraph
