// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/PlanSearch.h"

#include "passes/analysis/HostPlaces.h"

#include <utility>

namespace pumpgraph {

namespace {

/// A sum, so that a plan cannot become slower again in a row of small trades of time for bytes, nor a row of small
/// gains be lost.
double scoreUs(const Candidate &candidate) {
  constexpr double worthOfMoving = 0.01; // one microsecond less on the link, where the step takes as long
  return candidate.schedule.totalUs + worthOfMoving * candidate.movedUs;
}

} // namespace

bool isBetter(const Candidate &a, const Candidate &b, const Machine &machine) {
  const bool aFits = a.hostBytes <= machine.hostBytes, bFits = b.hostBytes <= machine.hostBytes;
  if (aFits != bFits)
    return aFits;
  if (!aFits)
    return a.hostBytes < b.hostBytes;
  return scoreUs(a) < scoreUs(b);
}

Candidate PlanSearch::judge(Draft draft) const {
  Candidate candidate{std::move(draft), {}, 0, 0};
  candidate.schedule = scheduleDraft(input_, candidate.draft);
  for (const DraftTransfer &transfer : candidate.draft.transfers) {
    const auto bytes = static_cast<double>(transfer.pages.pageCount * (1 + transfer.rows.size())) *
                       static_cast<double>(input_.timeline.pageBytes());
    candidate.movedUs +=
        bytes * 1e6 /
        (transfer.kind == NodeKind::Prefetch ? input_.machine.upBytesPerSecond : input_.machine.downBytesPerSecond);
  }
  if (input_.machine.hostBytes != UINT64_MAX)
    candidate.hostBytes = HostPlaces(writePlan(input_, candidate.draft, candidate.schedule, budgetBytes_)).bytes();
  return candidate;
}

bool PlanSearch::take(Candidate candidate) {
  if (best_ && !isBetter(candidate, *best_, input_.machine))
    return false;
  best_ = std::move(candidate);
  return true;
}

std::vector<std::int32_t> PlanSearch::framesOf(PieceIndex piece) const {
  const Piece &pages = input_.timeline.piece(piece);
  const auto first = best_->draft.frames[pages.buffer].begin() + pages.firstPage;
  if (*first == noFrame)
    return {};
  return std::vector<std::int32_t>(first, first + pages.pageCount);
}

} // namespace pumpgraph
