// SPDX-License-Identifier: Apache-2.0
/// \file
/// Escapes names from outside (of steps, buffers, kernels, files, devices) for reports and messages.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace pumpgraph {

/// `text` as one line of valid UTF-8 that a terminal shows and does not obey. Control characters (C0, DEL, C1), line
/// and paragraph separators, characters that reorder a line or are invisible, and invalid bytes become escapes: "\x1b",
/// "\u202e". Everything else stays; a printable text comes back unchanged.
std::string printable(std::string_view text);

/// The same with another notation: `spell` gives the escape of a character, or of a byte that begins none.
std::string printable(std::string_view text, const std::function<std::string(std::string_view bytes)> &spell);

} // namespace pumpgraph
