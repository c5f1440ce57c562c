// SPDX-License-Identifier: Apache-2.0
/// \file
/// The places in host memory of buffers that continue each other. Pages at the same position share one place: if one of
/// them is hosted it is its memory, and copies of the others begin or end there.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <vector>

namespace pumpgraph {

class HostedChains {
public:
  /// Keeps nothing of `buffers`.
  explicit HostedChains(const std::vector<Buffer> &buffers);

  /// Hosted ranges of the buffer and of those that it continues or that continue it, taken together: ascending and
  /// disjoint, cut wherever one of them begins or ends. Empty for a buffer that is no part of a chain.
  std::vector<Range> of(BufferIndex buffer) const;
  /// A buffer of the same chain whose page at this position, of the byte at `offset`, is hosted; noBuffer if there is
  /// none. The first of several, which share their memory there.
  BufferIndex at(BufferIndex buffer, std::uint64_t offset) const;
  /// The pieces of `range`, ascending, for whose bytes at() is the same: `range` itself, for most.
  std::vector<Range> alike(BufferIndex buffer, const Range &range) const;

private:
  struct Part {
    BufferIndex chain = 0; ///< its captured buffer
    Range range;
    BufferIndex host = 0;
  };
  std::vector<Part>::const_iterator firstOf(BufferIndex chain) const;

  std::vector<BufferIndex> chain_; ///< by buffer
  std::vector<Part> parts_;        ///< by chain, ascending
};

} // namespace pumpgraph
