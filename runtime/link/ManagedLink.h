// SPDX-License-Identifier: Apache-2.0
/// \file
/// The measured speed of managed memory; evictions vary by half from process to process.
#pragma once

#include "runtime/agent/LaneContexts.h"
#include "runtime/link/Link.h"

#include <vector>

namespace pumpgraph::runtime {

/// Times of moves of one size, microseconds.
struct MoveTimes {
  std::uint64_t bytes = 0;
  std::vector<double> upUs, downUs;
};

struct ManagedLink {
  LinkSpeed typical;         ///< the medians, for plans and predictions
  LinkSpeed best;            ///< the fastest of the repeats, for bounds
  double upOverheadUs = 0;   ///< of a prefetch, beside its bytes
  double downOverheadUs = 0; ///< of an eviction
  /// From the end of a node to the beginning of what is asked for after it, as timelines show it: not measured.
  double requestUs = 50;
  double emptyBytesPerSecond = 0; ///< of discards, and of prefetches that bring no value; 0: not measured
  std::uint64_t bytes = 0; ///< that were moved at a time; 0: nothing was measured, the figures are those of one H200
};

/// What the times of large and of small moves say. `beside`: of moves up while as many bytes went down; without any,
/// the two directions are taken to take turns. `empty`: of discards (down) and of prefetches after them, as large as
/// the large moves; without any, nothing is known of them.
ManagedLink linkOf(const MoveTimes &large, const MoveTimes &small, const MoveTimes &beside, const MoveTimes &empty);

/// What two measurements of one link say together: what is in the way of one only makes it slower, so of each figure
/// the better one counts.
ManagedLink together(const ManagedLink &first, const ManagedLink &second);

/// Whether something was in the way of the measurement `before`: its medians are so much slower than those of `after`
/// that a plan made with them is not the same.
bool wasDisturbed(const ManagedLink &before, const ManagedLink &after);

/// Moves up to 128 MiB of the arena there and back, which takes some 60 ms, halves of that both ways at once where
/// there are two contexts, and discards it, in pages that no block uses; they hold nothing afterwards, and are in host
/// memory. Measures nothing where the arena has no room to tell anything. `mostBytes`: that may be on the device.
Expected<ManagedLink> measureManagedLink(const Driver &driver, int device, AddressSpace &arena, std::uint64_t mostBytes,
                                         const LaneContexts &contexts);

} // namespace pumpgraph::runtime
