// SPDX-License-Identifier: Apache-2.0
/// \file
/// The memory behind the addresses of blocks.
#pragma once

#include "runtime/memory/Block.h"
#include "runtime/memory/HostMemory.h"
#include "runtime/memory/PageMapper.h"

namespace pumpgraph::runtime {

/// Puts memory behind one block at a time, and takes it away. It chooses none: where there is not enough of the kind
/// that is asked for, it fails.
class BlockMemory {
public:
  BlockMemory(const Driver &driver, AddressSpace &addresses, FramePool &pool, HostMemory &host,
              const PageMapper &mapper)
      : driver_(driver), addresses_(addresses), pool_(pool), host_(host), mapper_(mapper) {}
  BlockMemory(const BlockMemory &) = delete;
  BlockMemory &operator=(const BlockMemory &) = delete;

  /// Device, Piece or Host, behind a block that has none.
  Status put(Backing backing, Block &block);
  /// Stand-ins of at most so many pages, behind a block without anything.
  Status standIn(Block &block, std::uint64_t widest);
  /// See Heap::moveTo().
  Status move(Backing backing, Block &block);
  /// See Heap::unback().
  Status takeAway(Block &block);

private:
  /// The present or possible memory of a block.
  struct Memory {
    Backing backing = Backing::None; ///< Device, Piece or Host
    std::vector<FrameId> frames;
    CUmemGenericAllocationHandle handle = 0;
  };
  Expected<Memory> take(Backing backing, std::uint64_t pages);
  void give(const Memory &memory, std::uint64_t pages);
  Status map(CUdeviceptr address, std::uint64_t pages, const Memory &memory) const;
  Status unmap(CUdeviceptr address, std::uint64_t pages, const Memory &memory) const;
  static Memory memoryOf(const Block &block);
  static void setMemory(Block &block, Memory memory);
  /// To memory that is mapped nowhere.
  Status copyTo(const Memory &memory, const Block &block);

  const Driver &driver_;
  AddressSpace &addresses_;
  FramePool &pool_;
  HostMemory &host_;
  const PageMapper &mapper_;
  std::uint64_t stoodIn_ = 0; ///< blocks with stand-ins
};

} // namespace pumpgraph::runtime
