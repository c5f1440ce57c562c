// SPDX-License-Identifier: Apache-2.0
/// \file
/// Looks at what calls leave on the stack.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pumpgraph::runtime::test {

inline constexpr std::uintptr_t leftWord = 0x7f3a5c1e9b2d4680;
/// So far below its caller leaveWords() begins at least, and its words are so many: deeper than what calls in between
/// write themselves.
inline constexpr std::size_t leftDepthBytes = std::size_t{32} << 10;
inline constexpr std::size_t leftWords = 4096;

/// A frame full of the word, as of a launch that has returned.
[[gnu::noinline]] inline void leaveWords() {
  std::array<std::uintptr_t, leftWords + leftDepthBytes / sizeof(std::uintptr_t)> frame;
  frame.fill(leftWord);
  asm volatile("" : : "r"(frame.data()) : "memory");
}

/// How many of the words are still there, below the caller's frame, as a struct that is not filled in would find them.
[[gnu::noinline]] inline std::size_t countWordsLeft() {
  const char *here = static_cast<const char *>(__builtin_frame_address(0));
  asm volatile("" : "+r"(here)); // what is read is no variable of this function's
  std::size_t count = 0;
  const auto *words =
      reinterpret_cast<const volatile std::uintptr_t *>(here - leftDepthBytes - leftWords * sizeof(std::uintptr_t) / 2);
  for (std::size_t i = 0; i < leftWords / 2; ++i)
    count += words[i] == leftWord ? 1 : 0;
  return count;
}

} // namespace pumpgraph::runtime::test
