// SPDX-License-Identifier: Apache-2.0
/// \file
/// The device memory of a session: frames of one page, at most as many as the budget allows.
#pragma once

#include "runtime/memory/AddressSpace.h"

#include <set>
#include <vector>

namespace pumpgraph::runtime {

using FrameId = std::int32_t;

/// Invariant: never more frames exist than the budget holds. A frame is created when it is first needed and kept until
/// the pool ends; who took it gives it back. One handle a frame: the driver refuses to map part of a handle.
class FramePool {
public:
  FramePool(const Driver &driver, int device, std::uint64_t budgetFrames)
      : driver_(driver), device_(device), budgetFrames_(budgetFrames) {}
  ~FramePool();
  FramePool(const FramePool &) = delete;
  FramePool &operator=(const FramePool &) = delete;

  /// PUMPGRAPH_OUT_OF_DEVICE_MEMORY at the budget, or when the driver has no more.
  Expected<FrameId> take();
  void give(FrameId frame) { free_.insert(frame); }
  /// Creates frames until `count` are free, so that as many take() cannot fail.
  Status ensureFree(std::uint64_t count);

  /// One frame beside the budget, the same each time, that holds nothing anybody wants.
  Expected<CUmemGenericAllocationHandle> standIn();

  CUmemGenericAllocationHandle handle(FrameId frame) const { return handles_[static_cast<std::size_t>(frame)]; }
  std::uint64_t created() const { return handles_.size(); }
  std::uint64_t freeFrames() const { return free_.size(); }
  std::uint64_t budgetFrames() const { return budgetFrames_; }
  /// Frames that can be taken before the budget is reached.
  std::uint64_t available() const { return free_.size() + (budgetFrames_ - handles_.size()); }

private:
  Status create();
  Expected<CUmemGenericAllocationHandle> createHandle() const;

  const Driver &driver_;
  int device_;
  std::uint64_t budgetFrames_;
  std::vector<CUmemGenericAllocationHandle> handles_; ///< by FrameId
  /// Handed out from the smallest up: frames created one after the other tend to be neighbours, which the device's
  /// address translation likes.
  std::set<FrameId> free_;
  CUmemGenericAllocationHandle standIn_ = 0; ///< 0 until it is first needed
};

} // namespace pumpgraph::runtime
