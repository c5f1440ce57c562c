// SPDX-License-Identifier: Apache-2.0
/// \file
/// Escapes names from outside (of steps, buffers, kernels, files, devices) for reports and messages.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace pumpgraph {

/// `text` as one line of valid UTF-8 that a terminal shows and does not obey: control characters (C0, DEL, C1), line
/// and paragraph separators, characters that reorder a line or are invisible in it, and bytes that are no UTF-8 become
/// what stands for them: "\x1b", "\u202e". Everything else stays; what is printable already comes back as it is.
std::string printable(std::string_view text);

/// The same in other words: `spell` says what stands for a character, or for a byte that begins none.
std::string printable(std::string_view text, const std::function<std::string(std::string_view bytes)> &spell);

} // namespace pumpgraph
