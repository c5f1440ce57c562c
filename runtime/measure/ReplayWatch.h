// SPDX-License-Identifier: Apache-2.0
/// \file
/// Times a few replays of a step on the device, without waiting for any of them.
#pragma once

#include "runtime/driver/Driver.h"

#include <optional>
#include <vector>

namespace pumpgraph::runtime {

/// A clock ahead of and after each of `timedReplays` replays, on their stream. The first replay warms up and is not
/// timed.
class ReplayWatch {
public:
  ReplayWatch(const Driver &driver, std::size_t timedReplays) : driver_(driver), timedReplays_(timedReplays) {}
  ~ReplayWatch();
  ReplayWatch(const ReplayWatch &) = delete;
  ReplayWatch &operator=(const ReplayWatch &) = delete;

  Status beforeLaunch(CUstream stream);
  Status afterLaunch(CUstream stream);
  /// Whether as many replays as it takes were launched.
  bool isFull() const { return replays_ > timedReplays_; }
  /// The median of those that were launched, microseconds; nothing while one of them still runs.
  Expected<std::optional<double>> medianUs() const;

private:
  Status record(CUstream stream);

  const Driver &driver_;
  std::size_t timedReplays_;
  std::size_t replays_ = 0;
  std::vector<CUevent> clocks_; ///< two for each timed replay
};

double median(std::vector<double> values);

} // namespace pumpgraph::runtime
