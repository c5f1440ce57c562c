// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline/PlanBounds.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/plan/price/HostedPages.h"
#include "pumpgraph/graph/Ranges.h"

#include <optional>
#include <utility>

namespace pumpgraph {

PlanBounds::PlanBounds(const Description &captured, const PlanOptions &options, Repetitions repetitions)
    : captured_(captured), hosted_(options.hosted), machine_(options.machine), backend_(options.backend),
      budgetBytes_(options.budgetBytes), repetitions_(repetitions), workers_(options.processors == 1 ? 1 : 2) {
  if (budgetBytes_ == 0)
    return; // as much as the step turns out to need
  must_ = workers_.begin([this] { return ofBudget(budgetBytes_, BoundKind::Must, Backend::Virtual); });
  may_ = workers_.begin([this] { return ofBudget(budgetBytes_, BoundKind::May, backend_); });
}

Bound PlanBounds::must(const Description &planned) {
  return budgetBytes_ == planned.budgetBytes ? must_.get()
                                             : ofBudget(planned.budgetBytes, BoundKind::Must, Backend::Virtual);
}

std::pair<Bound, Bound> PlanBounds::may(const Description &planned) {
  const bool hostsNothing = hostedBytes(planned) == 0 && hostedBytes(captured_) == 0;
  if (backend_ == Backend::Virtual || hostsNothing) {
    // Hosted pages count, and nobody knew of them before.
    const Bound one = budgetBytes_ == planned.budgetBytes && hostsNothing
                          ? may_.get()
                          : planBoundOf(captured_, planned, machine_, backend_, repetitions_);
    return {one, one};
  }
  Description least = captured_;
  for (const BufferPart &part : hosted_)
    append(least.buffers[part.buffer].hosted, part.range);
  return {planBoundOf(captured_, planned, machine_, backend_),
          bound(captured_, planned.budgetBytes, machine_, BoundKind::May, backend_,
                leastHostedBytes(std::move(least), planned.budgetBytes))};
}

Bound PlanBounds::ofBudget(std::uint64_t budgetBytes, BoundKind kind, Backend backend) const {
  return bound(captured_, budgetBytes, machine_, kind, backend, std::nullopt, repetitions_);
}

Bound planBoundOf(const Description &captured, const Description &planned, const Machine &machine, Backend backend,
                  Repetitions repetitions) {
  Description step = captured;
  for (BufferIndex buffer = 0; buffer < step.buffers.size(); ++buffer)
    step.buffers[buffer].hosted = planned.buffers[buffer].hosted;
  return bound(step, planned.budgetBytes, machine, BoundKind::May, backend, std::nullopt, repetitions);
}

} // namespace pumpgraph
