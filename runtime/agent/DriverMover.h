// SPDX-License-Identifier: Apache-2.0
/// \file
/// The driver's calls by which an agent moves managed memory.
#pragma once

#include "runtime/agent/Agent.h"
#include "runtime/agent/Evictors.h"
#include "runtime/agent/LaneContexts.h"

#include <mutex>
#include <unordered_map>

namespace pumpgraph::runtime {

/// Makes prefetches and discards in the calling thread, and leaves evictions to evictors.
class DriverMover : public Mover {
public:
  /// `contexts` must outlive it.
  static Expected<std::unique_ptr<DriverMover>> create(const Driver &driver, int device, const LaneContexts &contexts);

  Outcome move(const Operation &operation) override;
  /// The same, with the driver's message on failure.
  Expected<Outcome> tryMove(const Operation &operation);

  std::size_t toHostAtOnce() const override { return evictors_->count(); }
  /// The memory is new: host copies of read-mostly ranges are invalid.
  void forgetCopies();
  /// How often something was late and was issued on another stream.
  std::uint64_t streamChanges() const;

private:
  DriverMover(const Driver &driver, int device, const LaneContexts &contexts)
      : driver_(driver), device_(device), up_(driver, contexts.up()) {}

  Expected<Outcome> moveUp(const Operation &operation);
  Status issue(const Operation &operation, CUstream stream) const;
  Status drop(ManagedRange range);
  bool isCopied(ManagedRange range, std::uint64_t surprises);

  const Driver &driver_;
  int device_;
  StreamLane up_;
  std::unique_ptr<Evictors> evictors_;
  /// Prefetches that found something on the device that should not have been there. Copies in host memory that were
  /// good before the last of them may not be any more.
  std::atomic<std::uint64_t> surprises_ = 0;
  std::mutex mutex_; ///< guards changes of advice, and copiedAfter_
  /// By address of a drop: how many there had been when its copy was last made sure of. Under mutex_.
  std::unordered_map<CUdeviceptr, std::uint64_t> copiedAfter_;
};

} // namespace pumpgraph::runtime
