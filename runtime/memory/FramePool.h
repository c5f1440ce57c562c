// SPDX-License-Identifier: Apache-2.0
/// \file
/// The device memory of a session: frames of one page, at most as many as the budget allows.
#pragma once

#include "runtime/memory/AddressSpace.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace pumpgraph::runtime {

using FrameId = std::int32_t;

/// Device memory with unused contents, mapped at addresses that need some memory.
struct StandIn {
  std::uint64_t pages = 1;
  CUmemGenericAllocationHandle handle = 0;
};

/// Invariant: no frame is created beyond the budget. A frame is created at its first use and kept until the pool ends,
/// or until a smaller budget excludes it while it is free. Owners give frames back. One driver handle for each frame,
/// since the driver refuses to map part of a handle.
class FramePool {
public:
  FramePool(const Driver &driver, int device, std::uint64_t budgetFrames)
      : driver_(driver), device_(device), budgetFrames_(budgetFrames) {}
  ~FramePool();
  FramePool(const FramePool &) = delete;
  FramePool &operator=(const FramePool &) = delete;

  /// PUMPGRAPH_OUT_OF_DEVICE_MEMORY at the budget, or when the driver has no more.
  Expected<FrameId> take();
  void give(FrameId frame);
  /// Creates frames until `count` are free, so that as many take() cannot fail.
  Status ensureFree(std::uint64_t count);

  /// Device memory of so many pages in one piece. Within the budget, as frames are; a piece that was given back serves
  /// the next one of its size.
  Expected<CUmemGenericAllocationHandle> takePiece(std::uint64_t pages);
  void givePiece(CUmemGenericAllocationHandle piece, std::uint64_t pages);
  void giveBackFreePieces();

  /// Changes the budget. Frames beyond it go back to the driver: those that are free at once, others when given back.
  void setBudget(std::uint64_t frames);

  /// Gives free frames back to the driver.
  void giveBackFree();

  /// Of 1, 2, 4 pages and so on, none wider than `pages`, the widest first. Giving access to a handle, and taking it
  /// away, takes the driver the same time whatever its size (docs/results/probes.md), and it does not map part of one.
  /// The one of a page is beside the budget; wider ones count as frames, and are there as far as nobody has taken
  /// these.
  Expected<std::vector<StandIn>> standIns(std::uint64_t pages);
  bool hasWideStandIns() const { return widePages_ != 0; }
  /// Gives back all but the one of a page. They must be mapped nowhere.
  void releaseWideStandIns();

  CUmemGenericAllocationHandle handle(FrameId frame) const { return handles_[static_cast<std::size_t>(frame)]; }
  std::uint64_t created() const { return handles_.size() - ended_.size() + widePages_ + piecePages_; }
  /// Since the peak was reset.
  std::uint64_t mostCreated() const { return mostCreated_; }
  void resetPeak() { mostCreated_ = created(); }
  std::uint64_t freeFrames() const { return free_.size(); }
  std::uint64_t budgetFrames() const { return budgetFrames_; }
  /// Frames that can be taken before the budget is reached.
  std::uint64_t available() const {
    return free_.size() + freePiecePages_ + (std::max(budgetFrames_, created()) - created());
  }

private:
  Status create();
  void end(FrameId frame);
  /// Gives memory that nobody holds back to the driver until so many pages more would be within the budget.
  void endFree(std::uint64_t pages);
  void endOneFreeFrame();
  void endOneFreePiece();
  Expected<CUmemGenericAllocationHandle> createHandle(std::uint64_t pages) const;
  Status widenStandIns();

  const Driver &driver_;
  int device_;
  std::uint64_t budgetFrames_;
  std::uint64_t mostCreated_ = 0;
  std::vector<CUmemGenericAllocationHandle> handles_; ///< by FrameId
  std::set<FrameId> ended_;                           ///< without a handle, to be used again
  /// Handed out from the smallest up: frames created one after the other tend to be neighbours, which the device's
  /// address translation likes.
  std::set<FrameId> free_;
  std::vector<StandIn> standIns_; ///< each twice as wide as the one before; empty until one is needed
  std::uint64_t widePages_ = 0;   ///< of all but the first
  std::multimap<std::uint64_t, CUmemGenericAllocationHandle> freePieces_; ///< by pages
  std::uint64_t freePiecePages_ = 0;
  std::uint64_t piecePages_ = 0; ///< of all, free or not
};

} // namespace pumpgraph::runtime
