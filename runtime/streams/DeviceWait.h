// SPDX-License-Identifier: Apache-2.0
/// \file
/// Waits for the device, but not for ever.
#pragma once

#include "runtime/driver/Driver.h"

#include <chrono>
#include <memory>

namespace pumpgraph::runtime {

/// A thread of its own waits, and goes on doing so where the caller gives up: a kernel may wait for the program. It
/// starts early, since the first use of a thread's data may wait for the loader.
class DeviceWait {
public:
  explicit DeviceWait(const Driver &driver);
  ~DeviceWait();
  DeviceWait(const DeviceWait &) = delete;
  DeviceWait &operator=(const DeviceWait &) = delete;

  /// Whether all work of the current context completes within that time. Not again once it has not.
  Expected<bool> isIdleWithin(std::chrono::milliseconds patience);

private:
  struct State;

  std::shared_ptr<State> state_;
};

} // namespace pumpgraph::runtime
