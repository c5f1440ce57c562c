// SPDX-License-Identifier: Apache-2.0
/// \file
/// The best plan so far, while the planner tries variants.
#pragma once

#include "passes/plan/FramePlanner.h"
#include "passes/plan/PlanWriter.h"

#include <cstdint>
#include <optional>
#include <utility>

namespace pumpgraph {

/// A plan that takes no longer than this times the plan bound is left alone.
inline constexpr double closeToBound = 1.01;

struct Candidate {
  Draft draft;
  Schedule schedule;
  double movedUs = 0;          ///< on the link, all copies one after the other
  std::uint64_t hostBytes = 0; ///< only if host memory is limited
};

/// Host memory must suffice, then time counts, and a little what is moved.
bool isBetter(const Candidate &a, const Candidate &b, const Machine &machine);

/// Keeps the best of the drafts it is shown.
class PlanSearch {
public:
  PlanSearch(const PlannerInput &input, std::uint64_t budgetBytes) : input_(input), budgetBytes_(budgetBytes) {}

  /// What the draft comes to. From several threads at once.
  Candidate judge(Draft draft) const;
  /// Returns whether it is the best so far.
  bool take(Candidate candidate);
  bool tryDraft(Draft draft) { return take(judge(std::move(draft))); }

  const std::optional<Candidate> &best() const { return best_; }
  std::uint64_t budgetBytes() const { return budgetBytes_; }

  /// The frames of the piece's pages in the best plan, of which there has to be one. Empty: it has none.
  std::vector<std::int32_t> framesOf(PieceIndex piece) const;

private:
  const PlannerInput &input_;
  std::uint64_t budgetBytes_;
  std::optional<Candidate> best_;
};

} // namespace pumpgraph
