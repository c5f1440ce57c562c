// SPDX-License-Identifier: Apache-2.0
/// \file
/// An agent's operations, and the words by which graph and agent communicate (docs/design/managed.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pumpgraph::runtime {

/// One transfer or discard of a step, requested once in every replay.
struct Operation {
  enum class Kind : std::uint8_t {
    Prefetch,
    Evict,
    Discard,
    Drop, ///< an eviction of what is read mostly: its copy in host memory is good
  };
  Kind kind = Kind::Prefetch;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::string name; ///< of the buffer
  /// Positions of operations that this one does not start beside: not while one of them is asked for or under way.
  std::vector<std::uint32_t> waitsFor;
  bool mayBringNothing = false; ///< a prefetch of what is discarded somewhere in the step
};

/// The words of one operation: one cache line of host memory that the device can reach.
struct alignas(64) OperationWords {
  std::uint32_t request = 0; ///< the graph sets it to 1; who sets it to 0 has taken the request
  std::uint32_t done = 0;    ///< the graph sets it to 0 before each request; whoever answers that sets it to 1
};

} // namespace pumpgraph::runtime
