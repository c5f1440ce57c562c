// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/FindPlan.h"

#include "passes/plan/Knobs.h"
#include "passes/plan/search/BoundaryProposers.h"
#include "passes/plan/search/Proposers.h"

#include <algorithm>
#include <utility>

namespace pumpgraph {

namespace {

std::uint64_t mostEffortFor(std::size_t nodes) {
  return std::clamp<std::uint64_t>(knobs::effortOfNodes / std::max<std::size_t>(1, nodes), knobs::leastEffort,
                                   knobs::mostEffort);
}

/// Takes the plan in which nothing has to make room, if there is one.
void takeWithoutTransfers(Search &search) {
  const PlannerInput &input = search.input();
  const auto isContinued = [](const Piece &piece) { return piece.isContinued; };
  const auto &pieces = input.timeline.pieces();
  if (input.given.isShared || input.timeline.peakPages() > input.frameCount ||
      std::any_of(pieces.begin(), pieces.end(), isContinued))
    return;
  if (std::optional<Draft> draft = draftWithoutTransfers(input))
    search.take("no transfers", search.evaluator().judge({}, std::move(*draft)));
}

/// Takes the plan with frames that are chosen without regard for time.
void takeColoured(Search &search, const FixedHomes *fixed) {
  const PlannerInput &input = search.input();
  if (input.given.isShared && residentsWithoutHome(input) > 0) // a colouring knows nothing of others' frames
    return;
  const std::optional<PieceFrames> homes = fixed ? fixed->homes : colourPieces(input);
  if (!homes)
    return;
  Outcome outcome = search.evaluator()({{input.given.states, {}, {}, *homes}, {}});
  if (outcome.evaluated && search.take("colouring", std::move(*outcome.evaluated)))
    search.asked().start = search.best().choices.start;
}

void proposeAll(Search &search, const FindOptions &options) {
  BoundaryProposers boundary(search);
  boundary.shares();
  if (!search.hasPlan())
    takeColoured(search, options.fixed);
  if (!search.hasPlan())
    return;
  boundary.lookingFurther();
  boundary.restlessFirst();
  boundary.finerShares();
  boundary.settledBoundary();
  proposeGapsByPrice(search);
  if (!search.input().isForManaged()) // there the next replay begins beside what is saved last
    boundary.leavingLater();
  if (!options.isQuick)
    proposeNeighbours(search);
  proposeJoining(search);
  if (!search.input().isForManaged())
    proposeDeferral(search);
}

} // namespace

std::optional<Found> findPlan(const PlannerInput &input, const FindOptions &options, Workers &workers, Shares &shares) {
  const Evaluator evaluator(input, options.budgetBytes);
  Repairs repairs(input, options.fixed);
  Search search(evaluator, repairs, workers, shares, mostEffortFor(input.timeline.nodeCount()));
  takeWithoutTransfers(search);
  if (!search.hasPlan())
    proposeAll(search, options);
  shares.searchIsDone();
  if (!search.hasPlan())
    return std::nullopt;
  Evaluated apart = search.best();
  if (!input.isForManaged())
    proposeRows(search);
  return Found{std::move(apart), search.best(), search.trace()};
}

} // namespace pumpgraph
