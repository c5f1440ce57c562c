// SPDX-License-Identifier: Apache-2.0
/// \file
/// Picks the fastest of several plans of a managed step by replays.
#pragma once

#include "runtime/session/Rewriting.h"

#include <string>
#include <vector>

namespace pumpgraph::runtime {

class KeptValues;

/// Puts each plan in force in turn, replays it, and leaves the fastest in force. Nothing else may replay the step
/// meanwhile.
class ManagedTrials {
public:
  ManagedTrials(StepState &step, Rewriting &rewriting, std::string costs)
      : step_(step), session_(step.session), driver_(*step.session.driver), rewriting_(rewriting),
        costs_(std::move(costs)) {}

  /// At least one; the first wins where others are no faster to speak of. All values are as before in the end. When it
  /// fails the graph is as it was, as far as Rewriting::restored() says so.
  Status run(std::vector<CompiledPlan> plans);

private:
  /// Puts each in force, and takes it back. A note says which could not be timed; an error if none could, or if one is
  /// left in the graph.
  Expected<std::size_t> findFastest(const std::vector<CompiledPlan> &plans, KeptValues &values);
  Expected<double> timeTrial(const CompiledPlan &plan, KeptValues &values);
  void note(const CompiledPlan &plan, const Error &why);
  Status putInForce(const CompiledPlan &plan);
  /// Of replays that each begin with the kept values, where one of them was before: the median, microseconds.
  Expected<double> timeReplays(KeptValues &values);
  Expected<double> timeReplay(KeptValues &values);

  StepState &step_;
  SessionState &session_;
  const Driver &driver_;
  Rewriting &rewriting_;
  std::string costs_; ///< where node times came from
};

} // namespace pumpgraph::runtime
