// SPDX-License-Identifier: Apache-2.0
/// \file
/// Many tasks on so many threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <future>
#include <thread>
#include <vector>

namespace pumpgraph {

/// `asked`, or as many as there are where that is 0.
inline unsigned processorsOf(unsigned asked) {
  return asked ? asked : std::max(std::thread::hardware_concurrency(), 1U);
}

/// Calls `work(i)` for each i below `count`, on at most so many threads, this one among them. Waits for all of them,
/// whatever fails, and throws what one has thrown.
template <typename Work> void sideBySide(std::size_t count, unsigned processors, const Work &work) {
  std::atomic<std::size_t> next = 0;
  const auto some = [&] {
    for (std::size_t i = next++; i < count; i = next++)
      work(i);
  };
  std::vector<std::future<void>> others; // each is waited for where it is destroyed
  for (std::size_t i = 1; i < std::min<std::size_t>(processors, count); ++i)
    others.push_back(std::async(std::launch::async, some));
  some();
  for (std::future<void> &other : others)
    other.get();
}

} // namespace pumpgraph
