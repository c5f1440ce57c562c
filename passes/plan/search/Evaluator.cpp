// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/Evaluator.h"

#include "passes/analysis/HostPlaces.h"
#include "passes/analysis/Indices.h"
#include "passes/analysis/Prediction.h"
#include "passes/plan/Knobs.h"
#include "passes/plan/schedule/Deferral.h"
#include "passes/plan/schedule/JoinTransfers.h"
#include "passes/plan/schedule/PlanWriter.h"

#include <algorithm>
#include <span>
#include <utility>

namespace pumpgraph {

namespace {

/// A sum, so that a plan cannot become slower again in a row of small trades of time for bytes, nor a row of small
/// gains be lost.
double scoreUs(const Evaluated &plan) {
  return plan.schedule.totalUs + knobs::worthOfMoving * plan.movedUs;
}

/// What no node writes has a good host copy for nothing: if it leaves, it need not be saved. Returns whether anything
/// is changed.
bool mirrorWhatIsOnlyRead(const PlannerInput &input, BoundaryStates &boundary, const Draft &draft) {
  bool isChanged = false;
  for (const PieceIndex piece : indicesOf(boundary)) {
    const std::span<const Use> uses = input.timeline.usesOf(piece);
    if (boundary[piece] != BoundaryState::Resident || !draft.fared[piece].leftUnwritten || !input.leavesClean(piece) ||
        input.given.isGiven[piece] || std::any_of(uses.begin(), uses.end(), [](const Use &use) { return use.writes; }))
      continue;
    boundary[piece] = BoundaryState::Mirrored;
    isChanged = true;
  }
  return isChanged;
}

} // namespace

std::vector<std::int32_t> Evaluated::framesOf(const Timeline &timeline, PieceIndex piece) const {
  const Piece &pages = timeline.piece(piece);
  const auto first = draft.frames[pages.buffer].begin() + pages.firstPage;
  if (*first == noFrame)
    return {};
  return std::vector<std::int32_t>(first, first + pages.pageCount);
}

bool isBetter(const Evaluated &a, const Evaluated &b, const Machine &machine) {
  const bool aFits = a.hostBytes <= machine.hostBytes, bFits = b.hostBytes <= machine.hostBytes;
  if (aFits != bFits)
    return aFits;
  if (!aFits)
    return a.hostBytes < b.hostBytes;
  return scoreUs(a) < scoreUs(b);
}

Outcome Evaluator::operator()(Choices choices, bool keepsHomes) const {
  // Groups have more tenants where most homes are kept, so pricing one takes longer.
  const std::uint64_t effortWeight = keepsHomes ? 2 : 1;
  Outcome outcome;
  const auto pass = [&] {
    tl::expected<Draft, Stuck> draft = draftPlan(input_, choices.start);
    outcome.effort += effortWeight * (draft ? draft->effort : draft.error().effort);
    return draft;
  };
  tl::expected<Draft, Stuck> draft = pass();
  if (draft && keepsHomes && mirrorWhatIsOnlyRead(input_, choices.start.boundary, *draft))
    draft = pass();
  if (!draft) {
    outcome.stuck = draft.error();
    return outcome;
  }
  const Finish asked = std::exchange(choices.finish, {});
  outcome.evaluated = judge(std::move(choices), std::move(*draft));
  if (asked != Finish())
    outcome.evaluated = finish(*outcome.evaluated, asked);
  return outcome;
}

Evaluated Evaluator::finish(const Evaluated &plan, const Finish &finish) const {
  const Finish &done = plan.choices.finish;
  Choices choices = plan.choices;
  choices.finish = finish;
  Draft draft = plan.draft;
  Schedule schedule = plan.schedule;
  const auto follow = [&](Draft next) {
    draft = std::move(next);
    schedule = scheduleDraft(input_, draft);
  };
  if (finish.joinReach != done.joinReach)
    follow(joinTransfers(draft, schedule,
                         {static_cast<std::uint32_t>(finish.joinReach), mostPagesOfTransfer(input_.timeline)}));
  for (std::uint32_t round = done.deferrals; round < finish.deferrals; ++round)
    follow(deferTransfers(input_, draft, schedule));
  if (finish.rowBytes != done.rowBytes)
    follow(joinRows(input_.captured, draft, schedule, {knobs::mostCandidates, finish.rowBytes}));
  return judge(std::move(choices), std::move(draft), std::move(schedule));
}

Evaluated Evaluator::judge(Choices choices, Draft draft) const {
  Schedule schedule = scheduleDraft(input_, draft);
  return judge(std::move(choices), std::move(draft), std::move(schedule));
}

Evaluated Evaluator::judge(Choices choices, Draft draft, Schedule schedule) const {
  Evaluated plan{std::move(choices), std::move(draft), std::move(schedule), 0, 0};
  for (const DraftTransfer &transfer : plan.draft.transfers) {
    const auto bytes = static_cast<double>(transfer.pages.pageCount * (1 + transfer.rows.size())) *
                       static_cast<double>(input_.timeline.pageBytes());
    plan.movedUs +=
        bytes * 1e6 /
        (transfer.kind == NodeKind::Prefetch ? input_.machine.upBytesPerSecond : input_.machine.downBytesPerSecond);
  }
  if (input_.machine.hostBytes != UINT64_MAX)
    plan.hostBytes = HostPlaces(write(plan)).bytes();
  return plan;
}

Description Evaluator::write(const Evaluated &plan) const {
  return writePlan(input_, plan.draft, plan.schedule, budgetBytes_);
}

double Evaluator::predictedUs(const Evaluated &plan) const {
  return predict(write(plan), input_.machine).totalUs;
}

} // namespace pumpgraph
