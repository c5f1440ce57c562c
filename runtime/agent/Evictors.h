// SPDX-License-Identifier: Apache-2.0
/// \file
/// A pool of threads that evict managed memory to the host.
#pragma once

#include "runtime/agent/ManagedLocation.h"
#include "runtime/agent/StreamLane.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace pumpgraph::runtime {

/// An eviction keeps a processor busy page by page, and the driver carries out one call of a context at a time. Each
/// thread therefore has a context of its own, and an eviction is split into one piece for each thread. Concurrent
/// evictions get fewer pieces each, because a piece has a fixed cost beside its bytes
/// (docs/decisions/12-managed-evictions.md). Idle threads sleep.
class Evictors {
public:
  /// One thread for each context, at least one.
  static Expected<std::unique_ptr<Evictors>> create(const Driver &driver, const std::vector<CUcontext> &contexts);
  /// When no eviction is under way any more.
  ~Evictors();
  Evictors(const Evictors &) = delete;
  Evictors &operator=(const Evictors &) = delete;

  /// Returns when the range is in host memory. From several threads at once, as many as there are evictors.
  Status evict(ManagedRange range);
  /// Makes a context in which evictions are called the calling thread's.
  Status makeCurrent() const { return lanes_.front()->makeCurrent(); }

  std::size_t count() const { return lanes_.size(); }
  std::uint64_t streamChanges() const;

private:
  struct Eviction {
    std::vector<ManagedRange> pieces;
    std::size_t begun = 0; ///< pieces
    std::size_t over = 0;
    Status status; ///< of the first piece that failed
  };

  explicit Evictors(const Driver &driver) : driver_(driver) {}
  void run(StreamLane &lane);
  Status evictPiece(StreamLane &lane, ManagedRange piece) const;

  const Driver &driver_;
  std::vector<std::unique_ptr<StreamLane>> lanes_;
  std::mutex mutex_;
  std::condition_variable begun_, over_;
  std::deque<Eviction *> waiting_; ///< those of which a piece has not begun, the first first; under mutex_
  std::size_t underWay_ = 0;       ///< evictions; under mutex_
  bool stopping_ = false;          ///< under mutex_
  std::vector<std::thread> threads_;
};

} // namespace pumpgraph::runtime
