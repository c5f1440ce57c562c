// SPDX-License-Identifier: Apache-2.0
/// \file
/// LRU paging for eager operators that together need more than the budget.
#pragma once

#include "runtime/memory/Heap.h"

#include <functional>
#include <map>
#include <set>
#include <span>

namespace pumpgraph::runtime {

/// While a program runs operators one by one, brings the operands of each to the device ahead of its launch. The least
/// recently used blocks move to host memory to make room for them and for new allocations. Blocks that no operator was
/// seen to use since their allocation, such as workspaces of libraries, move last. Every value stays at its address, so
/// an unseen use finds it over the link.
///
/// Blocks of several pages are in *pieces* on the device: the driver maps a piece in the time of a frame, and a frame
/// takes as long as its bytes over the link. Plans need frames, so settle() comes ahead of them.
///
/// Only blocks that an operator was seen to use, or that are allocated meanwhile, move; not the memory of the program's
/// own graphs, nor pages of small allocations once they are on the device.
class Paging {
public:
  Paging(const Driver &driver, FramePool &pool, HostMemory &host, Heap &heap)
      : driver_(driver), pool_(pool), host_(host), heap_(heap) {}
  Paging(const Paging &) = delete;
  Paging &operator=(const Paging &) = delete;

  /// Operators run on `stream` from now on. `fixed`: blocks that must not move.
  void begin(CUstream stream, std::set<BlockId> fixed);
  void end();
  /// Whether allocations on the stream are an operator's.
  bool isOf(CUstream stream) const { return isOn_ && stream == stream_; }
  bool isOn() const { return isOn_; }

  /// An operator uses these blocks next: they are on the device, as far as there is room for them at the same time.
  Status use(std::span<const BlockId> blocks);
  /// For Heap::makeRoomBy().
  const Heap::MakeRoom &maker() const { return maker_; }
  /// It was allocated just now.
  void allocated(BlockId block) { touch(block, false); }

  /// Ends, and gives blocks that are in pieces frames, those used last first, as far as there are any. After an error
  /// it may be called again.
  Status settle();
  /// The bytes that have crossed the link since begin().
  std::uint64_t movedBytes() const { return movedBytes_; }

private:
  struct Use {
    std::uint64_t last = 0;
    bool isSeen = false; ///< since the block was allocated
  };
  void touch(BlockId block, bool isSeen);
  bool canMove(const Block &block) const;
  Status makeRoom(std::uint64_t pages);
  Status move(Backing backing, BlockId block);
  Status moveToFrames();
  void forgetDestroyed();

  const Driver &driver_;
  FramePool &pool_;
  HostMemory &host_;
  Heap &heap_;
  Heap::MakeRoom maker_ = [this](std::uint64_t pages) { return makeRoom(pages); };
  bool isOn_ = false;
  CUstream stream_ = nullptr;
  std::set<BlockId> fixed_;
  std::set<BlockId> inUse_; ///< by the operator that runs
  std::uint64_t uses_ = 0;
  std::map<std::uint64_t, BlockId> byUse_; ///< the least recent first
  std::map<BlockId, Use> known_;
  std::uint64_t movedBytes_ = 0;
};

} // namespace pumpgraph::runtime
