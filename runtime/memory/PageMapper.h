// SPDX-License-Identifier: Apache-2.0
/// \file
/// Maps physical memory behind device addresses and unmaps it.
#pragma once

#include "pumpgraph/graph/Description.h"
#include "runtime/memory/FramePool.h"

#include <span>

namespace pumpgraph::runtime {

/// Stateless: the caller keeps track of mappings. A failed call has undone its own mappings. Addresses that are
/// unmapped or remapped must not be in use.
class PageMapper {
public:
  PageMapper(const Driver &driver, int device, const FramePool &pool) : driver_(driver), device_(device), pool_(pool) {}

  /// Maps one frame behind each page from `address` on, but where `frames` says noFrame.
  Status mapFrames(CUdeviceptr address, std::span<const FrameId> frames) const;
  /// Undoes mapFrames() of the same frames.
  Status unmapFrames(CUdeviceptr address, std::span<const FrameId> frames) const;

  /// Maps stand-ins behind so many pages, each as often as it fits into what is left; the last one has to be of one
  /// page. unmapHandle() undoes it.
  Status mapRepeated(CUdeviceptr address, std::uint64_t pages, std::span<const StandIn> standIns) const;

  /// Maps one whole handle of host memory, for the device alone. Could the processor reach it at these addresses, the
  /// driver would have it do copies between two of them: at a tenth of the speed, and with a segmentation fault where
  /// one leads to the device further on, or later (decision 16).
  Status mapHandle(CUdeviceptr address, std::uint64_t bytes, CUmemGenericAllocationHandle handle) const;
  Status unmapHandle(CUdeviceptr address, std::uint64_t bytes) const;

private:
  Status allow(CUdeviceptr address, std::uint64_t bytes) const;

  const Driver &driver_;
  int device_;
  const FramePool &pool_;
};

} // namespace pumpgraph::runtime
