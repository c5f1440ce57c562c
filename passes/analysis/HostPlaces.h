// SPDX-License-Identifier: Apache-2.0
/// \file
/// Where in the pinned pool each page of a planned step lives while it is in host memory.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <vector>

namespace pumpgraph {

/// One place a page, the same for the whole step; neighbouring pages of a buffer that both need one have neighbouring
/// places. Those of one size lie side by side in the order in which they leave the device, so that what leaves together
/// has places at one distance from each other (CopyRows.h). A buffer that continues another has its places. A page
/// needs a place if a transfer moves it, unless it is hosted at another address, or if it is live at the step boundary
/// and mirrored, or neither resident there nor hosted.
class HostPlaces {
public:
  explicit HostPlaces(const Description &planned);

  /// Size of the pool.
  std::uint64_t bytes() const { return bytes_; }
  /// Position of byte `offset` of `buffer` in the pool. The byte's page must need a place.
  std::uint64_t placeOf(BufferIndex buffer, std::uint64_t offset) const;

private:
  struct Run {
    Range range; ///< within the buffer
    std::uint64_t place = 0;
  };
  void placeRuns(const Description &planned);

  std::vector<BufferIndex> owner_;     ///< by buffer, whose places are its own
  std::vector<std::vector<Run>> runs_; ///< by owner, ascending
  std::uint64_t bytes_ = 0;
};

} // namespace pumpgraph
