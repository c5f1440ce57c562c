// SPDX-License-Identifier: Apache-2.0
/// \file
/// The graphs that a program captures for itself, beside those of the session.
#pragma once

#include "runtime/driver/Driver.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace pumpgraph::runtime {

/// Counted from 1 in the order in which the captures first allocate; 0 means none.
using GraphNumber = std::uint32_t;

/// Tracks graphs that allocate during their capture, until their end. A graph lives as long as the driver can run it:
/// until the graph, its clones and all their instantiations are destroyed and their launches are over. The driver
/// reports the end through a user object that the graph holds, regardless of the capturing code.
///
/// Not thread-safe, except for the driver's own thread.
class OtherGraphs {
public:
  explicit OtherGraphs(const Driver &driver) : driver_(driver) {}

  /// The graph into which `stream` is captured; 0 where no capture runs. A graph that cannot be followed is an error.
  Expected<GraphNumber> capturedOn(CUstream stream);
  bool empty() const { return alive_.empty(); }
  /// The graphs that are gone since the last call. Costs one load where there are none.
  std::vector<GraphNumber> takeEnded();
  /// takeEnded() for a caller that is short of memory: the driver's thread may take a moment to say that a graph is
  /// gone.
  std::vector<GraphNumber> waitForEnded(std::chrono::milliseconds atMost);

private:
  /// Shared with the driver's thread, which may outlive the session.
  struct Ending {
    std::shared_ptr<std::atomic<std::uint64_t>> count; ///< of all graphs
    std::atomic<bool> isOver{false};
  };
  struct Alive {
    cuuint64_t capture = 0; ///< the driver's number; never used twice
    std::shared_ptr<Ending> ending;
  };

  static void CUDA_CB ended(void *ending);

  const Driver &driver_;
  std::map<GraphNumber, Alive> alive_;
  GraphNumber last_ = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> endings_ = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::uint64_t endingsTaken_ = 0;
};

} // namespace pumpgraph::runtime
