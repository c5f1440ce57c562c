// SPDX-License-Identifier: Apache-2.0
/// \file
/// Host memory that the device can reach: pieces mapped straight behind device addresses, and the pinned pool that
/// copies go to. Both count against one limit.
#pragma once

#include "runtime/driver/Driver.h"
#include "runtime/messages/Progress.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace pumpgraph::runtime {

/// Counts the session's host memory and refuses requests over the limit, ahead of the system.
class HostMemory {
public:
  /// `restBytes`: of pieces that are released at most so many bytes are kept for others of their size. `progress`, if
  /// any, is told of memory that is pinned.
  HostMemory(const Driver &driver, int device, std::uint64_t limitBytes, std::uint64_t restBytes = 0,
             Progress *progress = nullptr);
  ~HostMemory() { giveBackReleased(); }
  HostMemory(const HostMemory &) = delete;
  HostMemory &operator=(const HostMemory &) = delete;

  /// A piece of host memory to map behind device addresses. Slow to get (3 to 5 GB/s), unless one of its size was
  /// released: that serves again, with what was in it. Released pieces do not count against the limit.
  Expected<CUmemGenericAllocationHandle> createBacking(std::uint64_t bytes);
  void releaseBacking(CUmemGenericAllocationHandle handle, std::uint64_t bytes);
  /// While this is on, all released pieces are kept.
  void keepReleased(bool on);
  void giveBackReleased() { endReleased(0); }
  /// Gives up released pieces where these bytes would exceed the limit beside them.
  void makeRoomFor(std::uint64_t bytes);

  /// PUMPGRAPH_OUT_OF_HOST_MEMORY, with how much is missing, unless `bytes` more fit.
  Status checkRoom(std::uint64_t bytes, const char *purpose) const;
  void countPinned(std::int64_t bytes) { pinnedBytes_ += static_cast<std::uint64_t>(bytes); }

  Progress *progress() const { return progress_; }
  std::uint64_t limitBytes() const { return limitBytes_; }
  std::uint64_t backedBytes() const { return backedBytes_; }
  std::uint64_t pinnedBytes() const { return pinnedBytes_; }

private:
  void endReleased(std::uint64_t keptBytes);

  const Driver &driver_;
  int numaNode_ = 0; ///< the one nearest to the device
  std::uint64_t limitBytes_;
  std::uint64_t backedBytes_ = 0;
  std::uint64_t pinnedBytes_ = 0;
  std::uint64_t restBytes_;
  Progress *progress_;
  bool keepsReleased_ = false;
  struct Released {
    std::uint64_t bytes;
    CUmemGenericAllocationHandle handle;
  };
  std::deque<Released> released_; ///< the first was released first
  std::uint64_t releasedBytes_ = 0;
};

/// Contiguous pinned host memory, on huge pages. Its address is fixed, since copy nodes of a graph contain it.
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

/// Pinned pools side by side: a position is a byte in one of them. Steps that share a boundary share pools.
class PinnedPools {
public:
  void add(std::shared_ptr<PinnedPool> pool);
  /// The same without pools in which no position of `used` (ascending) is. Positions stay.
  PinnedPools only(const std::vector<std::uint64_t> &used) const;

  char *at(std::uint64_t position) const;
  /// Whether the bytes lie in one pool.
  bool holds(std::uint64_t position, std::uint64_t bytes) const;
  bool contains(const void *pointer) const { return poolOf(pointer) != nullptr; }
  std::uint64_t offsetOf(const void *pointer) const;
  /// Where the next pool begins.
  std::uint64_t bytes() const { return end_; }

private:
  struct Part {
    std::uint64_t begin = 0;
    std::shared_ptr<PinnedPool> pool;
  };
  const Part *poolOf(const void *pointer) const;

  std::vector<Part> parts_; ///< ascending
  std::uint64_t end_ = 0;
};

/// Host memory to map behind device addresses, freed by the destructor.
class HostBacking {
public:
  static Expected<std::shared_ptr<HostBacking>> create(HostMemory &host, std::uint64_t bytes);
  ~HostBacking() { host_.releaseBacking(handle_, bytes_); }
  HostBacking(const HostBacking &) = delete;
  HostBacking &operator=(const HostBacking &) = delete;

  CUmemGenericAllocationHandle handle() const { return handle_; }

private:
  HostBacking(HostMemory &host, CUmemGenericAllocationHandle handle, std::uint64_t bytes)
      : host_(host), handle_(handle), bytes_(bytes) {}

  HostMemory &host_;
  CUmemGenericAllocationHandle handle_;
  std::uint64_t bytes_;
};

/// Available host memory: the system's figure, or less under a control group.
std::uint64_t availableHostBytes();

} // namespace pumpgraph::runtime
