// SPDX-License-Identifier: Apache-2.0
/// \file
/// An agent's hands: the driver's calls for managed memory.
#pragma once

#include "runtime/agent/Agent.h"
#include "runtime/agent/Evictor.h"
#include "runtime/agent/LaneContexts.h"

#include <unordered_map>

namespace pumpgraph::runtime {

/// Prefetches and discards are calls of one thread. An eviction keeps a processor busy with page after page, so it is
/// cut into as many pieces as there are contexts for it, one for the calling thread and one for each evictor
/// (docs/decisions/0019-evictions-by-several-threads.md).
class DriverMover : public Mover {
public:
  /// `contexts` must outlive it.
  static Expected<std::unique_ptr<DriverMover>> create(const Driver &driver, int device, const LaneContexts &contexts);

  Outcome move(const Operation &operation) override;
  /// The same, with what the driver says where it fails.
  Expected<Outcome> tryMove(const Operation &operation);

  /// How many pieces of an eviction are moved at once.
  std::size_t evictedAtOnce() const { return 1 + evictors_.size(); }
  /// How often something was late and was issued on another stream.
  std::uint64_t streamChanges() const;

private:
  DriverMover(const Driver &driver, int device, const LaneContexts &contexts)
      : driver_(driver), device_(device), up_(driver, contexts.up()), down_(driver, contexts.down()) {}

  Expected<Outcome> moveUp(const Operation &operation);
  Status issue(const Operation &operation, CUstream stream) const;
  Status evictTogether(ManagedRange range);
  std::vector<ManagedRange> piecesOf(ManagedRange range) const;
  Status drop(ManagedRange range);

  const Driver &driver_;
  int device_;
  StreamLane up_, down_;
  std::vector<std::unique_ptr<Evictor>> evictors_;
  /// Prefetches that found something on the device that should not have been there. Copies in host memory that were
  /// good before the last of them may not be any more.
  std::atomic<std::uint64_t> surprises_ = 0;
  /// By address of a drop: how many there had been when its copy was last made sure of.
  std::unordered_map<CUdeviceptr, std::uint64_t> copiedAfter_;
};

} // namespace pumpgraph::runtime
