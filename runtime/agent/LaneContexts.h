// SPDX-License-Identifier: Apache-2.0
/// \file
/// Where the two threads of an agent call the driver from.
#pragma once

#include "runtime/driver/Driver.h"

#include <memory>

namespace pumpgraph::runtime {

/// A context for each direction: the program's up, another down. The driver carries out one call of a context at a
/// time, and an eviction is one call for as long as it takes; in one context prefetches wait for evictions
/// (docs/decisions/0017-a-context-for-evictions.md). Managed memory belongs to no context.
class LaneContexts {
public:
  /// The program's for both where the driver gives no other, or where less than `leastFreeBytes` of the device would be
  /// free beside it.
  static std::unique_ptr<LaneContexts> create(const Driver &driver, int device, CUcontext program,
                                              std::uint64_t leastFreeBytes);
  /// After everything that uses it.
  ~LaneContexts();
  LaneContexts(const LaneContexts &) = delete;
  LaneContexts &operator=(const LaneContexts &) = delete;

  CUcontext up() const { return program_; }
  CUcontext down() const { return down_; }
  bool areTwo() const { return down_ != program_; }
  /// Device memory that the second one takes, as far as the driver tells.
  std::uint64_t deviceBytes() const { return deviceBytes_; }

private:
  LaneContexts(const Driver &driver, CUcontext program) : driver_(driver), program_(program), down_(program) {}
  std::uint64_t freeBytes() const;

  const Driver &driver_;
  CUcontext program_, down_;
  std::uint64_t deviceBytes_ = 0;
};

} // namespace pumpgraph::runtime
