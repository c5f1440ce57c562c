// SPDX-License-Identifier: Apache-2.0
/// \file
/// Joins lowered copies into strided ones: pages that move at the same time, in pieces of one size, become the rows of
/// a single copy with a pitch, which pays the fixed cost of a copy once (docs/decisions/10-copies-at-link-speed.md).
#pragma once

#include "pumpgraph/graph/Description.h"
#include "pumpgraph/graph/HostedChains.h"

#include <string>
#include <vector>

namespace pumpgraph {

/// The maximum of one copy. More would save next to nothing, and a node that waits for one row waits for all.
inline constexpr std::size_t mostRows = 16;

/// Two copies or more, in node order: the first, and those `joined` to it.
using CopyRows = std::vector<NodeIndex>;

/// The joined copies of a description, which must outlive this. A copy that is marked as joined but comes first in its
/// direction begins rows of its own, possibly as the only one.
class JoinedCopies {
public:
  explicit JoinedCopies(const Description &lowered);

  /// In the order of their first nodes.
  const std::vector<CopyRows> &all() const { return all_; }
  /// Why these, of one direction, cannot be one copy; empty if they can. They can if they are of one size, have
  /// frames of their own, lie in the pinned pool at one distance from each other, and if others wait for the last row
  /// alone, which waits for the one before it alone, and so on up to the first.
  std::string faultOf(const CopyRows &rows) const;
  /// The rows by their places in the pinned pool, ascending.
  CopyRows inHostOrder(CopyRows rows) const;
  /// From one row's place to the next one's, bytes. Of rows without a fault.
  std::uint64_t hostDistance(const CopyRows &rows) const;

private:
  /// The number of a node's edges on one side, and the node at the other end of the last edge.
  struct Neighbours {
    NodeIndex node = 0;
    std::uint32_t count = 0;
    bool allFull = true;
  };
  std::string faultOfEdges(const CopyRows &rows) const;

  const Description &lowered_;
  HostedChains hosted_;
  std::vector<Neighbours> before_, after_; ///< by node
  std::vector<CopyRows> all_;
};

/// Unmarks copies that cannot be rows of the copy ahead of them. The remaining marks have no fault.
void keepPossibleRows(Description &lowered);

} // namespace pumpgraph
