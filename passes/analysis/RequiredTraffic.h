// SPDX-License-Identifier: Apache-2.0
/// \file
/// The bytes that a plan's own choice of residencies makes it move; whatever it moves beyond them is moved in vain.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>

namespace pumpgraph {

struct Traffic {
  std::uint64_t upBytes = 0;
  std::uint64_t downBytes = 0;

  std::uint64_t total() const { return upBytes + downBytes; }
  friend bool operator==(const Traffic &, const Traffic &) = default;
};

/// What has to move, given which page has which frame and which pages are resident at the boundary
/// (docs/reference/report.md, "required"). Transfers are not looked at: the uses of a frame's pages say which page is
/// in it when. For planned and lowered descriptions that the checker accepts; 0 for one without a plan. Hosted pages do
/// not move.
Traffic requiredTraffic(const Description &planned);

/// The bytes of all transfers, planned or lowered.
Traffic movedTraffic(const Description &planned);

} // namespace pumpgraph
