// SPDX-License-Identifier: Apache-2.0
#include "passes/simulate/PagedMemory.h"

#include <cassert>

namespace pumpgraph {

PagingWork &PagingWork::operator+=(const PagingWork &other) {
  fetchedBytes += other.fetchedBytes;
  diskInBytes += other.diskInBytes;
  populatedBytes += other.populatedBytes;
  writtenBackBytes += other.writtenBackBytes;
  diskOutBytes += other.diskOutBytes;
  batches += other.batches;
  blocksServiced += other.blocksServiced;
  prefetchCalls += other.prefetchCalls;
  evictedBlocks += other.evictedBlocks;
  return *this;
}

PagedMemory::PagedMemory(std::uint64_t arenaBytes, std::uint64_t capacityBlocks, const UnifiedMemory &memory)
    : memory_(memory), capacityBlocks_(capacityBlocks), blocks_((arenaBytes + blockBytes - 1) / blockBytes) {
  assert(capacityBlocks_ > 0 && "without a frame nothing can be brought");
}

void PagedMemory::placeOnHost(std::uint64_t block, LeafMask leaves) {
  store(blocks_[block], leaves & ~blocks_[block].onHost);
}

void PagedMemory::bring(std::uint64_t index, LeafMask leaves, PagingWork &work) {
  Block &block = blocks_[index];
  assert((block.resident & leaves) == 0 && "a resident leaf does not fault");
  if (block.resident != 0)
    unlink(static_cast<std::uint32_t>(index));
  else if (usedBlocks_ == capacityBlocks_)
    evictOldest(work);
  else
    ++usedBlocks_;
  append(static_cast<std::uint32_t>(index));

  const LeafMask fromHost = leaves & block.onHost, fromDisk = leaves & block.onDisk;
  work.fetchedBytes += bytesOf(fromHost | fromDisk);
  work.diskInBytes += bytesOf(fromDisk);
  work.populatedBytes += bytesOf(leaves & ~(fromHost | fromDisk));
  block.resident |= leaves;
  block.dirty |= leaves & ~fromHost; // their only copy is here now
  block.onDisk &= ~leaves;
  if (memory_.hostCopyStays)
    return;
  block.onHost &= ~leaves;
  hostBytesUsed_ -= bytesOf(fromHost);
}

/// Frees one frame, which the caller takes at once.
void PagedMemory::evictOldest(PagingWork &work) {
  const std::uint32_t index = oldest_;
  unlink(index);
  Block &block = blocks_[index];
  // A page has one home: unless its host copy was kept, it is copied back whether it was written or not.
  const LeafMask leaving = memory_.hostCopyStays ? block.resident & (block.dirty | ~block.onHost) : block.resident;
  work.writtenBackBytes += bytesOf(leaving);
  ++work.evictedBlocks;
  const LeafMask stale = leaving & block.onHost;
  block.onHost &= ~stale;
  hostBytesUsed_ -= bytesOf(stale);
  work.diskOutBytes += store(block, leaving);
  block.resident = block.dirty = 0;
}

std::uint64_t PagedMemory::store(Block &block, LeafMask leaves) {
  const std::uint64_t bytes = bytesOf(leaves);
  if (bytes <= memory_.hostBytes && hostBytesUsed_ <= memory_.hostBytes - bytes) {
    block.onHost |= leaves;
    hostBytesUsed_ += bytes;
    return 0;
  }
  block.onDisk |= leaves;
  return bytes;
}

void PagedMemory::append(std::uint32_t index) {
  Block &block = blocks_[index];
  block.before = newest_;
  block.after = none;
  (newest_ == none ? oldest_ : blocks_[newest_].after) = index;
  newest_ = index;
}

void PagedMemory::unlink(std::uint32_t index) {
  Block &block = blocks_[index];
  (block.before == none ? oldest_ : blocks_[block.before].after) = block.after;
  (block.after == none ? newest_ : blocks_[block.after].before) = block.before;
  block.before = block.after = none;
}

} // namespace pumpgraph
