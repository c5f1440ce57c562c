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

/// The addresses of the thread's stack that may be written; none if nobody knows.
struct Stack {
  std::uintptr_t lowest = 0;
  std::uintptr_t end = 0;
};

Stack stackOfThread() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0)
    return {};
  void *lowest = nullptr;
  std::size_t bytes = 0, guardBytes = 0;
  const bool isKnown = pthread_attr_getstack(&attributes, &lowest, &bytes) == 0 &&
                       pthread_attr_getguardsize(&attributes, &guardBytes) == 0;
  pthread_attr_destroy(&attributes);
  const auto first = reinterpret_cast<std::uintptr_t>(lowest);
  return isKnown ? Stack{first + guardBytes, first + bytes} : Stack{};
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
  thread_local const Stack stack = stackOfThread();
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  // A coroutine has a stack of its own, and nobody says where it ends.
  if (here < stack.lowest || here >= stack.end || here - stack.lowest <= reserveBytes + frameBytes)
    return;
  clearFrames(std::min(deadStackBytes, here - stack.lowest - reserveBytes) / frameBytes);
}

} // namespace pumpgraph::runtime
