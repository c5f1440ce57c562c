// SPDX-License-Identifier: Apache-2.0
/// \file
/// How many threads each of several searches may use.
#pragma once

#include <algorithm>
#include <atomic>

namespace pumpgraph {

/// Processors shared among searches that run side by side: what one that is done leaves goes to the others. No plan
/// depends on it. Called from all their threads.
class Processors {
public:
  Processors(unsigned count, unsigned searches) : count_(count), searches_(searches) {}

  /// For each search that is not done, at least 1.
  unsigned ofEach() const {
    constexpr unsigned most = 6; // of what more of them would try, much comes after a success and counts for nothing
    return std::clamp(count_ / std::max(1U, searches_.load()), 1U, most);
  }
  /// Once for each search.
  void searchIsDone() { --searches_; }

private:
  const unsigned count_;
  std::atomic<unsigned> searches_;
};

} // namespace pumpgraph
