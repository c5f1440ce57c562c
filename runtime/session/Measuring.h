// SPDX-License-Identifier: Apache-2.0
/// \file
/// Timing a step and its nodes on the device.
#pragma once

#include "runtime/session/Step.h"

namespace pumpgraph::runtime {

/// Replays a step to time it, as often as is asked for; fewer times if that takes seconds, but twice at least if more
/// than one is asked for. Owns the copies of the graph and the clocks that this takes. Replays change what the step
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

  /// The same of a step that is not rewritten, without regard to how long all of them take: what two clocks with
  /// nothing between them tell is taken off each.
  Expected<std::vector<double>> timeNodesApart(int repeats);

  /// Nodes one behind the other, with clocks before the first and after the last.
  struct Run {
    std::size_t before = 0; ///< positions in `clocks_`
    std::size_t after = 0;
    std::vector<std::size_t> nodes = {}; ///< captured positions
    double us = 0;                       ///< median, with what the two clocks cost
  };
  /// What clocks cost, off `costsUs`, by captured position: every one was measured with a clock before and after the
  /// node, but in the runs `together` there are none in between. The nodes of a run get what they take together.
  static void takeOffClocks(std::vector<double> &costsUs, const std::vector<Run> &together);

private:
  enum class Clocks : std::uint8_t { AroundEach, WhereNodesWait };

  void dropCopy();
  Expected<CUevent> newClock();
  Status launchAndWait(CUgraphExec exec);
  Status addClock(GraphEditor &editor, CUgraphNode &clock);
  void beginRun();
  Status addNode(GraphEditor &editor, CUgraphNode &last, CUgraphNode original, std::size_t captured, bool follows);
  Status endRun(GraphEditor &editor, CUgraphNode &last);
  /// Chains the captured nodes of a copy of the graph, with clocks between them, and two with nothing between them at
  /// the end.
  Status chainCapturedNodes();
  Status chainRewrittenNodes(Clocks clocks);
  Expected<std::vector<Run>> timeRuns(int repeats, Clocks clocks);
  Expected<CUgraphNode> inCopy(CUgraphNode original) const;
  Expected<double> elapsedUs(std::size_t from, std::size_t to) const;

  Step &step_;
  Session &session_;
  const Driver &driver_;
  CUgraph copy_ = nullptr;
  CUgraphExec exec_ = nullptr;
  std::vector<CUevent> clocks_;
  std::vector<Run> runs_;                  ///< of the copy
  std::vector<std::vector<char>> values_;  ///< by BufferIndex
  std::vector<std::vector<char>> besides_; ///< of CapturedStep::besides, as far as they have memory
};

} // namespace pumpgraph::runtime
