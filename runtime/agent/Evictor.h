// SPDX-License-Identifier: Apache-2.0
/// \file
/// A thread that takes managed memory to the host.
#pragma once

#include "runtime/agent/StreamLane.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

namespace pumpgraph::runtime {

struct ManagedRange {
  CUdeviceptr address = 0;
  std::uint64_t bytes = 0;
};

/// Has the driver take a range to the host, on the calling thread; returns when it is there.
Status evict(const Driver &driver, StreamLane &lane, ManagedRange range);

/// Calls the driver in a context that no other thread calls it in, for it carries out one call of a context at a time.
/// Sleeps while it has nothing to do. begin() and end() in turn, from one thread.
class Evictor {
public:
  static Expected<std::unique_ptr<Evictor>> create(const Driver &driver, CUcontext context);
  ~Evictor();
  Evictor(const Evictor &) = delete;
  Evictor &operator=(const Evictor &) = delete;

  void begin(ManagedRange range);
  /// Waits for what was begun.
  Status end();
  /// From any thread.
  std::uint64_t streamChanges() const { return lane_.streamChanges(); }

private:
  enum class State : std::uint8_t { Idle, Begun, Stopping };
  Evictor(const Driver &driver, CUcontext context) : driver_(driver), lane_(driver, context) {}
  void run();

  const Driver &driver_;
  StreamLane lane_;
  std::atomic<State> state_ = State::Idle;
  ManagedRange range_; ///< written by who begins, read by the thread
  Status status_;      ///< written by the thread, read by who waits for the end
  std::thread thread_;
};

} // namespace pumpgraph::runtime
