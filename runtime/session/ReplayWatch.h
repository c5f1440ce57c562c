// SPDX-License-Identifier: Apache-2.0
/// \file
/// How long the first replays of a step take on the device, without waiting for any of them.
#pragma once

#include "runtime/driver/Driver.h"

#include <optional>
#include <vector>

namespace pumpgraph::runtime {

/// A clock before and after each of a few replays, on the stream they are launched on. The first replay warms up and is
/// not timed.
class ReplayWatch {
public:
  static constexpr std::size_t timedReplays = 3;

  explicit ReplayWatch(const Driver &driver) : driver_(driver) {}
  ~ReplayWatch();
  ReplayWatch(const ReplayWatch &) = delete;
  ReplayWatch &operator=(const ReplayWatch &) = delete;

  Status beforeLaunch(CUstream stream);
  Status afterLaunch(CUstream stream);
  /// Whether as many replays as it takes were launched.
  bool isFull() const { return replays_ > timedReplays; }
  /// The median, microseconds; nothing while one of them still runs.
  std::optional<double> medianUs() const;

private:
  Status record(CUstream stream);

  const Driver &driver_;
  std::size_t replays_ = 0;
  std::vector<CUevent> clocks_; ///< two for each timed replay
};

double median(std::vector<double> values);

} // namespace pumpgraph::runtime
