// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/Proposers.h"

#include "passes/plan/Knobs.h"

namespace pumpgraph {

void proposeJoining(Search &search) {
  const Evaluated apart = search.best();
  for (const std::int32_t reach : knobs::reachesTried)
    if (reach == 0 || !search.isSpent())
      search.take("joining", search.evaluator().finish(apart, {.joinReach = reach}));
}

// Each time some transfers give way, others have less time. The schedule starts captured nodes in their order, which
// the prediction does not: where branches run side by side both have to be faster.
void proposeDeferral(Search &search) {
  const Evaluator &evaluator = search.evaluator();
  for (int round = 0; round < (search.isSpent() ? 1 : knobs::mostOnTop); ++round) {
    const Evaluated &best = search.best();
    Finish finish = best.choices.finish;
    ++finish.deferrals;
    Evaluated deferring = evaluator.finish(best, finish);
    if (deferring.draft.deferrals.size() == best.draft.deferrals.size() ||
        (!search.isSpent() && evaluator.predictedUs(deferring) > evaluator.predictedUs(best)) ||
        !search.take("deferral", std::move(deferring)))
      return;
  }
}

void proposeRows(Search &search) {
  const Evaluated apart = search.best();
  for (const std::uint64_t bytes : knobs::rowBytesTried) {
    Finish finish = apart.choices.finish;
    finish.rowBytes = bytes;
    search.take("rows", search.evaluator().finish(apart, finish));
    if (apart.draft.capturedCount > knobs::mostNodesOfSeveralSearches)
      return;
  }
}

} // namespace pumpgraph
