// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/PlanSearch.h"

#include "passes/analysis/HostPlaces.h"

#include <utility>

namespace pumpgraph {

bool isBetter(const Candidate &a, const Candidate &b, const Machine &machine) {
  const bool aFits = a.hostBytes <= machine.hostBytes, bFits = b.hostBytes <= machine.hostBytes;
  if (aFits != bFits)
    return aFits;
  if (!aFits)
    return a.hostBytes < b.hostBytes;
  // Times this close are the same: the model is no better.
  constexpr double tolerance = 1.001;
  if (a.schedule.totalUs * tolerance < b.schedule.totalUs)
    return true;
  return a.schedule.totalUs <= b.schedule.totalUs * tolerance && a.movedPages < b.movedPages;
}

bool PlanSearch::tryDraft(Draft draft) {
  Candidate candidate{std::move(draft), {}, 0, 0};
  candidate.schedule = scheduleDraft(input_, candidate.draft);
  for (const DraftTransfer &transfer : candidate.draft.transfers)
    candidate.movedPages += transfer.pages.pageCount;
  if (input_.machine.hostBytes != UINT64_MAX)
    candidate.hostBytes = HostPlaces(writePlan(input_, candidate.draft, candidate.schedule, budgetBytes_)).bytes();
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
