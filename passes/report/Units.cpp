// SPDX-License-Identifier: Apache-2.0
#include "passes/report/Units.h"

#include "pumpgraph/graph/Printable.h"

#include <fmt/format.h>

#include <array>

namespace pumpgraph {

/// Three significant digits, without an exponent: 1.25, 12.5, 125, 1250.
static std::string threeDigits(double value) {
  if (value >= 99.95)
    return fmt::format("{:.0f}", value);
  if (value >= 9.995)
    return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

std::string formatBytes(std::uint64_t bytes) {
  static constexpr std::array units{"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024)
    return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.5 would be printed as "1024".
  while (value >= 1023.5 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", threeDigits(value), units[unit]);
}

std::string formatMicroseconds(double microseconds) {
  if (microseconds == 0)
    return "0 us";
  if (microseconds < 999.5)
    return threeDigits(microseconds) + " us";
  if (microseconds < 999.5e3)
    return threeDigits(microseconds / 1e3) + " ms";
  return threeDigits(microseconds / 1e6) + " s";
}

std::string formatRatio(double numerator, double denominator) {
  return denominator > 0 ? fmt::format("{:.2f} x", numerator / denominator) : "-";
}

std::string formatCount(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t i = digits.size(); i > 3; i -= 3)
    digits.insert(i - 3, 1, ',');
  return digits;
}

std::string formatCount(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", formatCount(count), noun, count == 1 ? "" : "s");
}

/// Whether no character of more than one byte goes on there.
static bool isBoundary(const std::string &text, std::size_t at) {
  return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
}

std::string shorten(std::string_view name, std::size_t length) {
  static constexpr std::string_view gap = "...";
  std::string shown = printable(name);
  if (shown.size() <= length)
    return shown;
  const std::size_t rest = length > gap.size() ? length - gap.size() : length;
  std::size_t tail = shown.size() - (rest < length ? rest / 2 : 0);
  std::size_t head = rest - (shown.size() - tail);
  while (!isBoundary(shown, head))
    --head;
  while (!isBoundary(shown, tail))
    ++tail;
  return shown.substr(0, head).append(rest < length ? gap : "").append(shown, tail);
}

} // namespace pumpgraph
