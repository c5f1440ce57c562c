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
    Drop, ///< an eviction of a read-mostly range, whose copy in host memory is valid
  };
  Kind kind = Kind::Prefetch;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::string name; ///< of the buffer
  /// Positions of operations that this one does not start beside: not while one of them is asked for or under way.
  std::vector<std::uint32_t> waitsFor;
  bool mayBringNothing = false; ///< a prefetch of a range that the step discards somewhere
};

/// The words of one operation: one cache line of host memory that the device can reach.
struct alignas(64) OperationWords {
  std::uint32_t request = 0; ///< the graph sets it to 1; the thread that sets it to 0 takes the request
  std::uint32_t done = 0;    ///< the graph sets it to 0 ahead of each request; the answer sets it to 1
};

} // namespace pumpgraph::runtime
