// SPDX-License-Identifier: Apache-2.0
/// \file
/// The times that a round's calls take on the device.
#pragma once

#include "pumpgraph/graph/Description.h"
#include "runtime/driver/Driver.h"
#include "runtime/streams/Call.h"

#include <functional>
#include <vector>

namespace pumpgraph::runtime {

/// Events around the calls of one round. Not thread-safe, but for begin() and end().
class CallClocks {
public:
  explicit CallClocks(const Driver &driver) : driver_(driver) {}
  ~CallClocks() { forget(true); }
  CallClocks(const CallClocks &) = delete;
  CallClocks &operator=(const CallClocks &) = delete;

  /// For a call; null events once there are too many.
  CallClock take();
  /// Around the call. A failure leaves it without a time.
  void begin(CallClock &clock, CUstream stream) const;
  void end(const CallClock &clock, CUstream stream) const;
  /// All events may be used again.
  void restart() { used_ = 0; }
  void forget(bool contextLives);

  /// Whether the calls have completed.
  bool arePast(const std::vector<CallClock> &clocks) const;
  /// Gives nodes their times once the calls have completed. `clocks`: by node. `isOnDevice`: whether all memory of a
  /// node is there; the link takes part of the others' times.
  void read(Description &round, const std::vector<CallClock> &clocks,
            const std::function<bool(NodeIndex)> &isOnDevice) const;

private:
  CUevent takeEvent();

  const Driver &driver_;
  std::vector<CUevent> events_;
  std::size_t used_ = 0;
};

} // namespace pumpgraph::runtime
