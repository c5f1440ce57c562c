// SPDX-License-Identifier: Apache-2.0
/// \file
/// The checker's own answer to "which node comes before which": the transitive closure of a step's edges.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pumpgraph::check {

/// A strict partial order on the nodes of one description, as one bit per pair of nodes: n^2 / 16 bytes in all
/// (4 MiB for 8,000 nodes). The edges have to go from smaller to larger indices.
class CompletionOrder {
public:
  enum class Follow {
    Full,    ///< paths of full edges only: `before` means "has completed before the other starts"
    AnyEdge, ///< programmatic edges as well: `before` means "the program wants it first"
  };

  CompletionOrder(const Description &description, Follow follow);

  bool before(NodeIndex first, NodeIndex second) const {
    if (first >= second)
      return false;
    return (bits_[rowStart_[second] + first / 64] >> (first % 64) & 1) != 0;
  }

private:
  /// Makes every predecessor of `from`, and `from` itself, a predecessor of `to`.
  void join(NodeIndex from, NodeIndex to);

  std::vector<std::size_t> rowStart_; ///< by node: where its set of predecessors begins in `bits_`
  std::vector<std::uint64_t> bits_;
};

} // namespace pumpgraph::check
