// SPDX-License-Identifier: Apache-2.0
#include "passes/simulate/Density.h"

namespace pumpgraph {

static LeafMask subtreeOf(unsigned leaf, unsigned leaves) {
  const LeafMask ones = leaves == leavesPerBlock ? ~LeafMask{0} : (LeafMask{1} << leaves) - 1;
  return ones << (leaf / leaves * leaves);
}

LeafMask densityMask(LeafMask resident, LeafMask faulted, std::uint32_t percent) {
  const LeafMask occupied = resident | faulted;
  LeafMask wanted = faulted;
  for (unsigned leaves = 2; leaves <= leavesPerBlock; leaves *= 2) {
    for (unsigned first = 0; first < leavesPerBlock; first += leaves) {
      const LeafMask subtree = subtreeOf(first, leaves);
      const bool isDense = static_cast<std::uint32_t>(std::popcount(occupied & subtree)) * 100 > leaves * percent;
      if (isDense && (faulted & subtree) != 0)
        wanted |= subtree;
    }
  }
  return wanted & ~resident;
}

} // namespace pumpgraph
