// SPDX-License-Identifier: Apache-2.0
/// \file
/// What choices come to: one pass over the step, a schedule, and the one order of plans.
#pragma once

#include "passes/plan/schedule/Schedule.h"
#include "passes/plan/search/Choices.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace pumpgraph {

struct Evaluated {
  Choices choices;
  Draft draft;
  Schedule schedule;
  double movedUs = 0;          ///< on the link, all copies one after the other
  std::uint64_t hostBytes = 0; ///< only if host memory is limited

  /// The frames of the piece's pages; empty: it has none.
  std::vector<std::int32_t> framesOf(const Timeline &timeline, PieceIndex piece) const;
};

/// Whether plan `a` is better: host memory must suffice, then time counts, and a little what is moved.
bool isBetter(const Evaluated &a, const Evaluated &b, const Machine &machine);

/// A plan, or the node that found no frames.
struct Outcome {
  std::optional<Evaluated> evaluated;
  Stuck stuck; ///< without a plan
  std::uint64_t effort = 0;
};

/// For one step with pieces of one size. All members may be called from several threads at once.
class Evaluator {
public:
  /// `input` is referred to.
  Evaluator(const PlannerInput &input, std::uint64_t budgetBytes) : input_(input), budgetBytes_(budgetBytes) {}

  /// `keepsHomes`: nearly all pieces have those of an earlier plan. Then a piece that is only read, and leaves, is
  /// mirrored, and the plan may have other choices at the boundary for that.
  Outcome operator()(Choices choices, bool keepsHomes = false) const;
  /// The same choices with another finish, which begins with that of `plan`: no pass is needed.
  Evaluated finish(const Evaluated &plan, const Finish &finish) const;
  /// A draft that no pass has made.
  Evaluated judge(Choices choices, Draft draft) const;

  Description write(const Evaluated &plan) const;
  double predictedUs(const Evaluated &plan) const;

  const PlannerInput &input() const { return input_; }
  std::uint64_t budgetBytes() const { return budgetBytes_; }

private:
  Evaluated judge(Choices choices, Draft draft, Schedule schedule) const;

  const PlannerInput &input_;
  std::uint64_t budgetBytes_;
};

} // namespace pumpgraph
