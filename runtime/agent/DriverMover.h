// SPDX-License-Identifier: Apache-2.0
/// \file
/// An agent's hands: the driver's calls for managed memory, on streams for each direction.
#pragma once

#include "runtime/agent/Agent.h"
#include "runtime/agent/LaneContexts.h"

namespace pumpgraph::runtime {

/// What prefetches and advice name as their target.
CUmemLocation locationOf(bool onDevice, int device);

/// The driver maps the streams of a context to a few queues of the device (8, unless CUDA_DEVICE_MAX_CONNECTIONS says
/// otherwise). Where the agent has no contexts of its own, a stream that shares one with a stream of the program does
/// nothing while that one waits for the agent. So a lane has as many streams as there are queues, and goes on with the
/// next when something does not end on one.
class DriverMover : public Mover {
public:
  /// `contexts` must outlive it.
  static Expected<std::unique_ptr<DriverMover>> create(const Driver &driver, int device, const LaneContexts &contexts);
  ~DriverMover() override;
  DriverMover(const DriverMover &) = delete;
  DriverMover &operator=(const DriverMover &) = delete;

  Outcome move(const Operation &operation) override;

  /// How often an operation was late and was issued on another stream.
  std::uint64_t streamChanges() const { return streamChanges_; }

private:
  static constexpr std::size_t queues = 8;

  DriverMover(const Driver &driver, int device, const LaneContexts &contexts) : driver_(driver), device_(device) {
    up_.context = contexts.up();
    down_.context = contexts.down();
  }

  struct Way {
    CUstream stream = nullptr;
    CUevent end = nullptr;
  };
  struct Lane {
    CUcontext context = nullptr;
    std::array<Way, queues> ways;
    std::size_t current = 0;
  };
  Status open(Lane &lane);
  /// Of the thread that calls.
  bool makeCurrent(const Lane &lane) const;
  Status issue(const Operation &operation, CUstream stream) const;
  /// Of two copies of what is read mostly the one at its preferred location stays, that in host memory.
  Status dropDeviceCopy(const Operation &operation) const;
  enum class End : std::uint8_t { Over, Late, Failed };
  /// Whether everything on the way's stream is over before `patience` is.
  End awaitEnd(const Way &way, std::chrono::microseconds patience) const;

  const Driver &driver_;
  int device_;
  Lane up_, down_;
  std::atomic<std::uint64_t> streamChanges_ = 0;
};

} // namespace pumpgraph::runtime
