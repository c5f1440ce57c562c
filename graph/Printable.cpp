// SPDX-License-Identifier: Apache-2.0
#include "pumpgraph/graph/Printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace pumpgraph {
namespace {

struct CodePoints {
  char32_t first, last;
};

/// What is not shown as it stands in a line: controls, and format characters that move, hide or fake text.
constexpr std::array<CodePoints, 12> unsafe{{
    {0x00, 0x1f},       // C0
    {0x7f, 0x9f},       // DEL, C1
    {0xad, 0xad},       // soft hyphen
    {0x61c, 0x61c},     // Arabic letter mark
    {0x180e, 0x180e},   // Mongolian vowel separator
    {0x200b, 0x200f},   // zero width, direction marks
    {0x2028, 0x202e},   // line and paragraph separators, embeddings, overrides
    {0x2060, 0x206f},   // joiners, isolates, deprecated format characters
    {0xfeff, 0xfeff},   // byte order mark
    {0xfff9, 0xfffb},   // interlinear annotation
    {0xfffe, 0xffff},   // no characters
    {0xe0000, 0xe007f}, // tags
}};

bool isSafe(char32_t point) {
  return std::none_of(unsafe.begin(), unsafe.end(),
                      [&](const CodePoints &range) { return range.first <= point && point <= range.last; });
}

bool isContinuation(unsigned char byte) {
  return (byte & 0xc0) == 0x80;
}

struct Decoded {
  char32_t point = 0;
  std::size_t bytes = 0; ///< 0: no character begins here
};

/// The character at the beginning of `text`, which is not empty. Overlong forms and surrogates are none.
Decoded decode(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80)
    return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  static constexpr std::array<char32_t, 5> least{0, 0, 0x80, 0x800, 0x10000};
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes)
    return {};
  char32_t point = lead & (0x7f >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (!isContinuation(byte))
      return {};
    point = point << 6 | (byte & 0x3f);
  }
  const bool isSurrogate = 0xd800 <= point && point <= 0xdfff;
  return point < least[bytes] || isSurrogate || point > 0x10ffff ? Decoded{} : Decoded{point, bytes};
}

/// "\x1b", "\u202e"
std::string spellInHex(std::string_view bytes) {
  if (bytes.size() == 1)
    return fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes.front()));
  return fmt::format("\\u{:04x}", static_cast<std::uint32_t>(decode(bytes).point));
}

bool isPlain(char c) {
  return ' ' <= c && c <= '~';
}

} // namespace

std::string printable(std::string_view text) {
  return printable(text, spellInHex);
}

std::string printable(std::string_view text, const std::function<std::string(std::string_view)> &spell) {
  std::string out;
  while (!text.empty()) {
    const auto plain = static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), isPlain) - text.begin());
    out.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty())
      break;
    const auto [point, decoded] = decode(text);
    const std::string_view bytes = text.substr(0, std::max<std::size_t>(1, decoded));
    out += decoded > 0 && isSafe(point) ? std::string(bytes) : spell(bytes);
    text.remove_prefix(bytes.size());
  }
  return out;
}

} // namespace pumpgraph
