// SPDX-License-Identifier: Apache-2.0
/// \file
/// Timing a step and its nodes on the device.
#pragma once

#include "runtime/session/Step.h"

namespace pumpgraph::runtime {

/// Replays a step to time it. Owns the copies of the graph and the clocks that this takes. Replays change what the step
/// writes: keepValues() before the first, restoreValues() after the last.
class Measuring {
public:
  explicit Measuring(Step &step) : step_(step), session_(step.session_), driver_(*step.session_.driver_) {}
  ~Measuring() { dropCopy(); }
  Measuring(const Measuring &) = delete;
  Measuring &operator=(const Measuring &) = delete;

  /// PUMPGRAPH_OUT_OF_HOST_MEMORY where the system has no room for a copy of all values.
  Status keepValues();
  Status restoreValues();

  /// Median time of a whole replay, microseconds.
  Expected<double> timeReplay(int repeats);
  /// Median time of each captured node, microseconds, by captured position. `stepUs` is the time of a whole replay.
  Expected<std::vector<double>> timeNodes(int repeats, double stepUs);

private:
  struct Clocks {
    std::size_t before; ///< positions in `clocks_`
    std::size_t after;
  };

  void dropCopy();
  Expected<CUevent> newClock();
  Status launchAndWait(CUgraphExec exec);
  Status addClock(GraphEditor &editor, CUgraphNode &clock);
  /// Chains the captured nodes of a copy of the graph, with clocks between them.
  Status chainCapturedNodes();
  Status chainRewrittenNodes();
  Expected<CUgraphNode> inCopy(CUgraphNode original) const;
  Expected<double> elapsedUs(std::size_t from, std::size_t to) const;

  Step &step_;
  Session &session_;
  const Driver &driver_;
  CUgraph copy_ = nullptr;
  CUgraphExec exec_ = nullptr;
  std::vector<CUevent> clocks_;
  std::vector<Clocks> clocksOf_;          ///< by captured position
  std::vector<std::vector<char>> values_; ///< by BufferIndex
};

} // namespace pumpgraph::runtime
