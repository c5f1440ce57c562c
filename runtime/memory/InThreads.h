// SPDX-License-Identifier: Apache-2.0
/// \file
/// Work in as many threads as the system gives.
#pragma once

#include <cstddef>
#include <system_error>
#include <thread>
#include <vector>

namespace pumpgraph::runtime {

/// Calls `work(i)` for each i below `count`, in threads of their own; at a limit of the user's or of a container, in
/// this one. Returns once all are over.
template <typename Work> void inThreads(std::size_t count, const Work &work) {
  std::vector<std::jthread> threads;
  threads.reserve(count);
  std::size_t begun = 1;
  try {
    for (; begun < count; ++begun)
      threads.emplace_back([&work, begun] { work(begun); });
  } catch (const std::system_error &) {
  }
  if (count != 0)
    work(0);
  for (; begun < count; ++begun)
    work(begun);
}

} // namespace pumpgraph::runtime
