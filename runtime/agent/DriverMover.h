// SPDX-License-Identifier: Apache-2.0
/// \file
/// An agent's hands: the driver's calls for managed memory, on streams for each direction.
#pragma once

#include "runtime/agent/Agent.h"
#include "runtime/driver/Driver.h"

namespace pumpgraph::runtime {

/// What prefetches and advice name as their target.
CUmemLocation locationOf(bool onDevice, int device);

/// The driver maps streams to a few queues of the device (8, unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise). A
/// stream that shares one with a stream of the program does nothing while that one waits for the agent. So a lane has
/// as many streams as there are queues, and goes on with the next when something does not end on one.
class DriverMover : public Mover {
public:
  static Expected<std::unique_ptr<DriverMover>> create(const Driver &driver, int device, CUcontext context);
  ~DriverMover() override;
  DriverMover(const DriverMover &) = delete;
  DriverMover &operator=(const DriverMover &) = delete;

  Outcome move(const Operation &operation) override;

  /// How often an operation was late and was issued on another stream.
  std::uint64_t streamChanges() const { return streamChanges_; }

private:
  static constexpr std::size_t queues = 8;

  DriverMover(const Driver &driver, int device, CUcontext context)
      : driver_(driver), device_(device), context_(context) {}

  struct Way {
    CUstream stream = nullptr;
    CUevent end = nullptr;
  };
  struct Lane {
    std::array<Way, queues> ways;
    std::size_t current = 0;
  };
  Status open(Lane &lane);
  Status issue(const Operation &operation, CUstream stream) const;
  /// Of two copies of what is read mostly the one at its preferred location stays, that in host memory.
  Status dropDeviceCopy(const Operation &operation) const;
  enum class End : std::uint8_t { Over, Late, Failed };
  /// Whether everything on the way's stream is over before `patience` is.
  End awaitEnd(const Way &way, std::chrono::microseconds patience) const;

  const Driver &driver_;
  int device_;
  CUcontext context_;
  Lane up_, down_;
  std::atomic<std::uint64_t> streamChanges_ = 0;
};

} // namespace pumpgraph::runtime
