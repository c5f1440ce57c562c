// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a plan is for, as far as that decides what pages cost that leave and come back.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <cstdint>
#include <vector>

namespace pumpgraph {

/// What a plan is lowered to.
enum class Backend : std::uint8_t {
  Virtual,       ///< copies and edges
  Managed,       ///< operations of an agent on managed memory
  ManagedUnknown ///< the same where accesses are not all known, so that nothing is discarded
};

/// By buffer: whether no node may write it.
std::vector<bool> onlyRead(const Description &captured);

/// By buffer: whether the host copy of a page stays good while the page is on the device unwritten, so that it leaves
/// for nothing. Virtual pages have a place in the pool each. A managed page has one copy, which crosses the link
/// whenever it leaves, unless it is read mostly, as what is only read is where every access is known.
std::vector<bool> keepHostCopies(const Description &captured, Backend backend);

/// The step as it is where nobody knows what is dead: whatever leaves its frame crosses the link, and comes back over
/// it.
Description withNothingDead(Description step);

} // namespace pumpgraph
