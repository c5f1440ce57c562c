// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/DeadStack.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace pumpgraph::runtime {

namespace {

constexpr std::size_t frameBytes = 4096;
/// Kept away from the end of the stack, beside its guard.
constexpr std::size_t reserveBytes = std::size_t{64} << 10;

/// The lowest address of the thread's stack that may be written; UINTPTR_MAX if nobody knows.
std::uintptr_t stackEnd() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0)
    return UINTPTR_MAX;
  void *lowest = nullptr;
  std::size_t bytes = 0, guardBytes = 0;
  const bool isKnown = pthread_attr_getstack(&attributes, &lowest, &bytes) == 0 &&
                       pthread_attr_getguardsize(&attributes, &guardBytes) == 0;
  pthread_attr_destroy(&attributes);
  return isKnown ? reinterpret_cast<std::uintptr_t>(lowest) + guardBytes : UINTPTR_MAX;
}

/// Each call has a frame of its own below the one before it.
[[gnu::noinline]] void clearFrames(std::size_t count) {
  std::array<char, frameBytes> frame;
  std::memset(frame.data(), 0, frame.size());
  asm volatile("" : : "r"(frame.data()) : "memory"); // or nothing would be written: nobody reads it
  if (count > 1)
    clearFrames(count - 1);
  asm volatile("" : : "r"(frame.data()) : "memory"); // or the call would be a jump, to the same frame
}

} // namespace

void clearDeadStack() {
  thread_local const std::uintptr_t end = stackEnd();
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (here <= end || here - end <= reserveBytes + frameBytes)
    return;
  clearFrames(std::min(deadStackBytes, here - end - reserveBytes) / frameBytes);
}

} // namespace pumpgraph::runtime
