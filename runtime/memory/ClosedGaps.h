// SPDX-License-Identifier: Apache-2.0
/// \file
/// Addresses of the process that nobody gets for a while.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pumpgraph::runtime {

/// Reserves what is free above an address, in pieces that other mappings leave, up to the highest mapping below the
/// stack. What other threads map meanwhile comes below, or into gaps that are narrower than asked for.
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
