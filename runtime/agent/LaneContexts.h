// SPDX-License-Identifier: Apache-2.0
/// \file
/// CUDA contexts for the threads of an agent.
#pragma once

#include "runtime/driver/Driver.h"

#include <memory>
#include <vector>

namespace pumpgraph::runtime {

/// The program's context for prefetches, and contexts of their own for evictions. The driver carries out one call of a
/// context at a time, and an eviction is one long call: in a single context prefetches would wait for evictions, and
/// evictions for each other (docs/decisions/12-managed-evictions.md). Managed memory belongs to no context.
class LaneContexts {
public:
  /// As many contexts of its own as are `wanted`; fewer, also none, where the driver gives no more or where less than
  /// `leastFreeBytes` of the device would be free beside them.
  static std::unique_ptr<LaneContexts> create(const Driver &driver, int device, CUcontext program,
                                              std::uint64_t leastFreeBytes, std::size_t wanted);
  /// After everything that uses it.
  ~LaneContexts();
  LaneContexts(const LaneContexts &) = delete;
  LaneContexts &operator=(const LaneContexts &) = delete;

  CUcontext up() const { return program_; }
  /// The program's where there is no other.
  std::vector<CUcontext> down() const { return own_.empty() ? std::vector{program_} : own_; }
  std::size_t ownContexts() const { return own_.size(); }
  /// Device memory that these take, as far as the driver tells.
  std::uint64_t deviceBytes() const { return deviceBytes_; }

private:
  LaneContexts(const Driver &driver, CUcontext program) : driver_(driver), program_(program) {}
  bool add(CUdevice device, std::uint64_t leastFreeBytes);
  std::uint64_t freeBytes() const;

  const Driver &driver_;
  CUcontext program_;
  std::vector<CUcontext> own_;
  std::uint64_t deviceBytes_ = 0;
};

} // namespace pumpgraph::runtime
