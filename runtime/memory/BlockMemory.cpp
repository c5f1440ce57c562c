// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/BlockMemory.h"

#include <cassert>
#include <utility>

namespace pumpgraph::runtime {

Expected<BlockMemory::Memory> BlockMemory::take(Backing backing, std::uint64_t pages) {
  Memory memory{.backing = backing, .frames = {}, .handle = 0};
  if (backing == Backing::Device) {
    PUMPGRAPH_TRY(pool_.ensureFree(pages));
    for (std::uint64_t page = 0; page < pages; ++page)
      memory.frames.push_back(*pool_.take());
    return memory;
  }
  const auto handle = backing == Backing::Piece ? pool_.takePiece(pages) : host_.createBacking(pages * pageBytes);
  if (!handle)
    return tl::unexpected<Error>(handle.error());
  memory.handle = *handle;
  return memory;
}

void BlockMemory::give(const Memory &memory, std::uint64_t pages) {
  for (const FrameId frame : memory.frames)
    pool_.give(frame);
  if (memory.backing == Backing::Piece)
    pool_.givePiece(memory.handle, pages);
  if (memory.backing == Backing::Host)
    host_.releaseBacking(memory.handle, pages * pageBytes);
}

Status BlockMemory::map(CUdeviceptr address, std::uint64_t pages, const Memory &memory) const {
  if (memory.backing == Backing::Device)
    return mapper_.mapFrames(address, memory.frames);
  if (memory.backing == Backing::Host)
    return mapper_.mapHandle(address, pages * pageBytes, memory.handle);
  const StandIn piece{.pages = pages, .handle = memory.handle};
  return mapper_.mapRepeated(address, pages, {&piece, 1});
}

Status BlockMemory::unmap(CUdeviceptr address, std::uint64_t pages, const Memory &memory) const {
  return memory.backing == Backing::Device ? mapper_.unmapFrames(address, memory.frames)
                                           : mapper_.unmapHandle(address, pages * pageBytes);
}

BlockMemory::Memory BlockMemory::memoryOf(const Block &block) {
  return {.backing = block.backing,
          .frames = block.frames,
          .handle = block.backing == Backing::Piece ? block.pieceHandle : block.hostHandle};
}

void BlockMemory::setMemory(Block &block, Memory memory) {
  block.backing = memory.backing;
  block.frames = std::move(memory.frames);
  block.hostHandle = memory.backing == Backing::Host ? memory.handle : 0;
  block.pieceHandle = memory.backing == Backing::Piece ? memory.handle : 0;
}

Status BlockMemory::standIn(Block &block, std::uint64_t widest) {
  const Expected<std::vector<StandIn>> standIns = pool_.standIns(widest);
  if (!standIns)
    return tl::unexpected<Error>(standIns.error());
  if (Status mapped = mapper_.mapRepeated(block.address, block.pages, *standIns); !mapped) {
    if (stoodIn_ == 0)
      pool_.releaseWideStandIns();
    return mapped;
  }
  block.backing = Backing::StandIn;
  ++stoodIn_;
  return {};
}

Status BlockMemory::put(Backing backing, Block &block) {
  assert(!block.hasMemory());
  Expected<Memory> memory = take(backing, block.pages);
  if (!memory)
    return tl::unexpected<Error>(memory.error());
  Status mapped = takeAway(block);
  if (mapped)
    mapped = map(block.address, block.pages, *memory);
  if (!mapped) {
    give(*memory, block.pages);
    return mapped;
  }
  setMemory(block, std::move(*memory));
  return {};
}

/// Through addresses of its own: those of the block are taken.
Status BlockMemory::copyTo(const Memory &memory, const Block &block) {
  const Expected<CUdeviceptr> window = addresses_.carveApart(block.pages);
  if (!window)
    return tl::unexpected<Error>(window.error());
  Status copied = map(*window, block.pages, memory);
  if (copied) {
    copied = driver_.memcpyDtoDAsync(*window, block.address, block.bytes(), nullptr);
    if (copied)
      copied = driver_.ctxSynchronize();
    const Status unmapped = unmap(*window, block.pages, memory);
    if (copied)
      copied = unmapped;
  }
  addresses_.giveBack(*window, block.pages);
  return copied;
}

Status BlockMemory::move(Backing backing, Block &block) {
  assert(block.backing == Backing::Device || block.backing == Backing::Piece || block.backing == Backing::Host);
  Expected<Memory> memory = take(backing, block.pages);
  if (!memory)
    return tl::unexpected<Error>(memory.error());
  const Memory before = memoryOf(block);
  Status moved = copyTo(*memory, block);
  if (moved)
    moved = unmap(block.address, block.pages, before);
  if (moved) {
    moved = map(block.address, block.pages, *memory);
    if (!moved)
      (void)map(block.address, block.pages, before); // it still holds the contents
  }
  if (!moved) {
    give(*memory, block.pages);
    return moved;
  }
  setMemory(block, std::move(*memory));
  give(before, block.pages);
  return {};
}

Status BlockMemory::takeAway(Block &block) {
  switch (block.backing) {
  case Backing::None:
    return {};
  case Backing::Managed:
    break;
  case Backing::StandIn:
    PUMPGRAPH_TRY(mapper_.unmapHandle(block.address, block.bytes()));
    if (--stoodIn_ == 0)
      pool_.releaseWideStandIns();
    break;
  case Backing::Planned:
    assert(false && "a plan's frames are not the block's to give back");
    return {};
  case Backing::Device:
  case Backing::Piece:
  case Backing::Host: {
    const Memory memory = memoryOf(block);
    PUMPGRAPH_TRY(unmap(block.address, block.pages, memory));
    give(memory, block.pages);
    break;
  }
  }
  setMemory(block, {});
  return {};
}

} // namespace pumpgraph::runtime
