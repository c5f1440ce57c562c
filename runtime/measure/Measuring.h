// SPDX-License-Identifier: Apache-2.0
/// \file
/// Times a step and its nodes in runs of PumpGraph's own.
#pragma once

#include "runtime/measure/KeptValues.h"
#include "runtime/measure/NodeClocks.h"

namespace pumpgraph::runtime {

/// Times a step over the given number of runs; fewer if they take seconds, but at least two if more than one is
/// requested. Each run begins with the kept values, whose owner restores them after the last.
class Measuring {
public:
  Measuring(StepState &step, KeptValues &values)
      : step_(step), session_(step.session), driver_(*step.session.driver), values_(values) {}

  /// Median time of a whole replay, microseconds.
  Expected<double> timeReplay(int repeats);
  /// Median time of each captured node, microseconds, by captured position. `stepUs` is the time of a whole replay.
  Expected<std::vector<double>> timeNodes(int repeats, double stepUs);
  /// The same of a step that is not rewritten, without regard to how long all of them take: what two clocks with
  /// nothing between them tell is taken off each.
  Expected<std::vector<double>> timeNodesApart(int repeats);

private:
  /// One run, from the kept values, in which `launch` launches the step on the session's stream.
  Status run(const std::function<Status()> &launch);
  Expected<std::vector<NodeClocks::Run>> timeRuns(int repeats, NodeClocks::Where where);
  /// With `clocks` in `copy`.
  Expected<std::vector<NodeClocks::Run>> timeCopy(CUgraph copy, NodeClocks &clocks, int repeats,
                                                  NodeClocks::Where where);

  StepState &step_;
  SessionState &session_;
  const Driver &driver_;
  KeptValues &values_;
};

/// The median over `repeats` runs of a step that moves nothing; its nodes get the times that they take. All values are
/// as before in the end.
Expected<Measurement> measure(StepState &step, int repeats);

} // namespace pumpgraph::runtime
