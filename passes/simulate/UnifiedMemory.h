// SPDX-License-Identifier: Apache-2.0
/// \file
/// How a machine pages unified memory: sizes, costs and habits of the driver, as the simulator knows them.
#pragma once

#include "passes/analysis/Machine.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace pumpgraph {

/// The driver's unit of management and of eviction: one aligned piece of addresses, backed by one piece of device
/// memory.
inline constexpr std::uint64_t blockBytes = std::uint64_t{2} << 20;
/// What a fault grows to, and the leaf of a block's density tree.
inline constexpr std::uint64_t leafBytes = std::uint64_t{64} << 10;
inline constexpr unsigned leavesPerBlock = blockBytes / leafBytes;

/// A set of leaves of one block, the first in the lowest bit.
using LeafMask = std::uint32_t;
static_assert(leavesPerBlock == std::numeric_limits<LeafMask>::digits);

inline std::uint64_t bytesOf(LeafMask leaves) {
  return static_cast<std::uint64_t>(std::popcount(leaves)) * leafBytes;
}

/// Where the buffers of a step have their addresses.
enum class Addresses : std::uint8_t {
  Own,   ///< each its own, as in a captured step or a study's trace: all of them together are the footprint
  Reused ///< handed on when a buffer dies, as a framework's caching allocator does: little more than the peak
};

/// Nobody tells the driver that a value is dead or will be overwritten: a block that was ever written is moved as if
/// its bytes mattered. Decimal bytes per second. The defaults are one H200, see h200UnifiedMemory().
struct UnifiedMemory {
  std::string name = "h200";
  // The link and the device.
  double upBytesPerSecond = 51e9;        ///< one fetch of many bytes
  double downBytesPerSecond = 14e9;      ///< writing back evicted blocks
  double populateBytesPerSecond = 126e9; ///< giving memory to pages that hold no value yet
  bool writesBackBeside = false; ///< written back beside fetches and compute; else a fault waits for its evictions too
  // Faults.
  double batchUs = 24;                ///< from the first fault of a batch to the replay, whatever is in it
  double blockUs = 72;                ///< for each block that a batch has faults in
  std::uint32_t faultsPerBatch = 256; ///< most that are taken from the fault buffer at once
  std::uint64_t touchBytes = 4096;    ///< between two touches of a kernel's sweep: one fault each, at most `leafBytes`
  std::uint32_t densityPercent = 51;  ///< see densityMask(); 100: never more than what faulted
  bool computesWhileFaulting = true;  ///< a kernel works on what has come while the next batch is handled
  // Prefetches.
  double prefetchCallUs = 90; ///< for each operand with bytes to move
  // The other end.
  bool hostCopyStays = false; ///< a fetched page's host copy remains valid, so that clean pages are dropped, not copied
  std::uint64_t hostBytes = std::numeric_limits<std::uint64_t>::max(); ///< what does not fit goes to the disk
  double diskBytesPerSecond = 3.15e9;                                  ///< each way; counts only if the host is full
  bool fetchesBesideDisk = false; ///< the host has what the disk leaves of the link; else they take turns
  // The program.
  Addresses addresses = Addresses::Reused;
  std::uint32_t replays = 2; ///< how often the step runs in a row, from host memory; the last one is reported
};

/// One H200 on PCIe 5 x16. What each figure was taken from: docs/design/cost-model.md.
UnifiedMemory h200UnifiedMemory();

/// The simulator of the G10 study (MICRO 2023), as its artifact charges a kernel: every missing byte at the rate of the
/// link, those of a first touch too, and nothing for the fault.
UnifiedMemory g10UnifiedMemory();

/// The same with the faster link of the study's experiments with faster disks.
UnifiedMemory g10FastLinkUnifiedMemory();

/// The V100 of the study of 2019, of which little is known: the H200 behind PCIe 3 x16 instead of 5, with the same
/// share of what the link has by name.
UnifiedMemory v100UnifiedMemory();

/// What unifiedMemoryOf() knows, for messages.
inline constexpr std::string_view unifiedMemoryNames = "h200, v100, g10 and g10-32";

/// Nothing for a name that is none of these.
std::optional<UnifiedMemory> unifiedMemoryOf(std::string_view name);

/// The same behind the machine's link, where that is the slower one.
UnifiedMemory withinLink(UnifiedMemory memory, const Machine &machine);

} // namespace pumpgraph
