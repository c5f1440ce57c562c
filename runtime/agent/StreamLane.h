// SPDX-License-Identifier: Apache-2.0
/// \file
/// Streams of one context for the agent's work.
#pragma once

#include "runtime/driver/Driver.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace pumpgraph::runtime {

/// The driver maps the streams of a context to a few queues of the device (8, unless CUDA_DEVICE_MAX_CONNECTIONS
/// differs). A stream that shares a queue with a waiting stream of the program makes no progress. The lane has as many
/// streams as there are queues; a thread whose work does not end on one stream goes on with the next. For one thread at
/// a time, except streamChanges().
class StreamLane {
public:
  StreamLane(const Driver &driver, CUcontext context) : driver_(driver), context_(context) {}
  ~StreamLane();
  StreamLane(const StreamLane &) = delete;
  StreamLane &operator=(const StreamLane &) = delete;
  /// Creates the streams. To be called once, before anything else.
  Status open();

  /// Makes the context the calling thread's, for good, and keeps what that calls out of captures of other threads.
  Status makeCurrent() const;

  struct Done {
    bool isRepeated = false; ///< on another stream, because it was late on the first
    std::chrono::steady_clock::duration took{};
  };
  /// Has `issue` make one call of the driver's that moves so many bytes, on a stream with nothing left to do, and
  /// returns when that is over; may have it made again, on another stream. Makes the context current, too.
  Expected<Done> carryOut(std::uint64_t bytes, const std::function<Status(CUstream)> &issue);

  /// How often. From any thread.
  std::uint64_t streamChanges() const { return changes_; }

private:
  static constexpr std::size_t queues = 8;
  struct Way {
    CUstream stream = nullptr;
    CUevent end = nullptr;
  };
  enum class End : std::uint8_t { Over, Late, Failed };
  /// Whether everything on the way's stream is over before `patience` is.
  End awaitEnd(const Way &way, std::chrono::microseconds patience) const;

  const Driver &driver_;
  CUcontext context_;
  std::array<Way, queues> ways_;
  std::size_t current_ = 0;
  std::atomic<std::uint64_t> changes_ = 0;
};

} // namespace pumpgraph::runtime
