// SPDX-License-Identifier: Apache-2.0
/// \file
/// Reserves free addresses of the process for a while.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pumpgraph::runtime {

/// Reserves the free addresses above a given one, in the gaps between other mappings, up to the highest mapping below
/// the stack. Concurrent mappings of other threads land below, or in gaps narrower than the given size.
class ClosedGaps {
public:
  /// Gaps of at least `bytes`.
  ClosedGaps(std::uint64_t above, std::uint64_t bytes);
  ~ClosedGaps();
  ClosedGaps(const ClosedGaps &) = delete;
  ClosedGaps &operator=(const ClosedGaps &) = delete;

private:
  struct Gap {
    void *address;
    std::size_t bytes;
  };
  std::vector<Gap> closed_;
};

} // namespace pumpgraph::runtime
