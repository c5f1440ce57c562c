// SPDX-License-Identifier: Apache-2.0
/// \file
/// The state of unified memory between two batches: which leaves are where, and whose turn it is to leave.
#pragma once

#include "passes/simulate/UnifiedMemory.h"

#include <cstdint>
#include <vector>

namespace pumpgraph {

/// What was moved and done, in bytes and counts.
struct PagingWork {
  std::uint64_t fetchedBytes = 0;   ///< from host memory or disk
  std::uint64_t diskInBytes = 0;    ///< of these, from the disk
  std::uint64_t populatedBytes = 0; ///< first touches: memory, but no transfer
  std::uint64_t writtenBackBytes = 0;
  std::uint64_t diskOutBytes = 0; ///< of these, to the disk
  std::uint64_t batches = 0;
  std::uint64_t blocksServiced = 0; ///< blocks with faults, summed over the batches
  std::uint64_t prefetchCalls = 0;
  std::uint64_t evictedBlocks = 0;

  PagingWork &operator+=(const PagingWork &other);
};

/// All blocks of one arena and the device memory for `capacityBlocks` of them. A block with any leaf on the device has
/// a whole frame. When a frame is wanted and none is free, the block leaves to which the longest time ago anything was
/// brought; being used does not count.
class PagedMemory {
public:
  PagedMemory(std::uint64_t arenaBytes, std::uint64_t capacityBlocks, const UnifiedMemory &memory);

  LeafMask resident(std::uint64_t block) const { return blocks_[block].resident; }
  std::uint64_t capacityBlocks() const { return capacityBlocks_; }

  /// Gives leaves a value in host memory, before the first replay.
  void placeOnHost(std::uint64_t block, LeafMask leaves);
  /// Brings `leaves`, none of them resident, to the device, after evicting what has to go.
  void bring(std::uint64_t block, LeafMask leaves, PagingWork &work);
  /// Notes a write to resident leaves.
  void markDirty(std::uint64_t block, LeafMask leaves) { blocks_[block].dirty |= leaves & blocks_[block].resident; }

private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  struct Block {
    LeafMask resident = 0;
    LeafMask dirty = 0;
    LeafMask onHost = 0;                       ///< the copy there is valid
    LeafMask onDisk = 0;                       ///< the only copy is there
    std::uint32_t before = none, after = none; ///< neighbours in the order of migration
  };

  void evictOldest(PagingWork &work);
  /// Puts values where there is room for them; returns how many bytes went to the disk.
  std::uint64_t store(Block &block, LeafMask leaves);
  void append(std::uint32_t block);
  void unlink(std::uint32_t block);

  const UnifiedMemory &memory_;
  std::uint64_t capacityBlocks_;
  std::uint64_t usedBlocks_ = 0;
  std::uint64_t hostBytesUsed_ = 0;
  std::vector<Block> blocks_;
  std::uint32_t oldest_ = none, newest_ = none;
};

} // namespace pumpgraph
