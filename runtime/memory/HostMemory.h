// SPDX-License-Identifier: Apache-2.0
/// \file
/// Host memory that the device can reach: pieces mapped straight behind device addresses, and the pinned pool that
/// copies go to. Both count against one limit.
#pragma once

#include "runtime/driver/Driver.h"

#include <cstdint>
#include <memory>

namespace pumpgraph::runtime {

/// Keeps count of the session's host memory and refuses what would go over the limit, before the system has to.
class HostMemory {
public:
  HostMemory(const Driver &driver, int device, std::uint64_t limitBytes);

  /// A piece of host memory to map behind device addresses. Slow to get (about 3 GB/s).
  Expected<CUmemGenericAllocationHandle> createBacking(std::uint64_t bytes);
  void releaseBacking(CUmemGenericAllocationHandle handle, std::uint64_t bytes);

  /// PUMPGRAPH_OUT_OF_HOST_MEMORY, with how much is missing, unless `bytes` more fit.
  Status checkRoom(std::uint64_t bytes, const char *purpose) const;
  void countPinned(std::int64_t bytes) { pinnedBytes_ += static_cast<std::uint64_t>(bytes); }

  int numaNode() const { return numaNode_; }
  std::uint64_t limitBytes() const { return limitBytes_; }
  std::uint64_t backedBytes() const { return backedBytes_; }
  std::uint64_t pinnedBytes() const { return pinnedBytes_; }

private:
  const Driver &driver_;
  int numaNode_ = 0; ///< the one nearest to the device
  std::uint64_t limitBytes_;
  std::uint64_t backedBytes_ = 0;
  std::uint64_t pinnedBytes_ = 0;
};

/// Pinned host memory in one piece, on huge pages. Its address stays the same: copy nodes of a graph name it.
class PinnedPool {
public:
  static Expected<std::unique_ptr<PinnedPool>> create(const Driver &driver, HostMemory &host, std::uint64_t bytes);
  ~PinnedPool();
  PinnedPool(const PinnedPool &) = delete;
  PinnedPool &operator=(const PinnedPool &) = delete;

  char *at(std::uint64_t offset) const { return data_ + offset; }
  std::uint64_t bytes() const { return bytes_; }
  bool contains(const void *pointer) const {
    return static_cast<const char *>(pointer) >= data_ && static_cast<const char *>(pointer) < data_ + bytes_;
  }
  std::uint64_t offsetOf(const void *pointer) const {
    return static_cast<std::uint64_t>(static_cast<const char *>(pointer) - data_);
  }

private:
  PinnedPool(const Driver &driver, HostMemory &host, char *mapping, std::uint64_t mappedBytes, std::uint64_t bytes);

  const Driver &driver_;
  HostMemory &host_;
  char *mapping_;
  std::uint64_t mappedBytes_;
  char *data_;
  std::uint64_t bytes_;
};

/// Host memory that can still be had: what the system calls available, or less where a control group says so.
std::uint64_t availableHostBytes();

} // namespace pumpgraph::runtime
