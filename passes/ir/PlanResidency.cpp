// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/PlanResidency.h"

#include "passes/ir/MachineOptions.h"
#include "passes/ir/Passes.h"
#include "pumpgraph/graph/Conversion.h"

namespace pumpgraph::ir {

#define GEN_PASS_DEF_PLANRESIDENCY
#include "passes/ir/Passes.h.inc"

namespace {

/// Chooses which gaps between two uses of a buffer are spent in host memory, so that the bytes on the device never
/// exceed the budget, and in which frames its pages are otherwise.
struct PlanResidency : impl::PlanResidencyBase<PlanResidency> {
  using Base::Base;

  void runOnOperation() override {
    const Lifted step = toDescription(getOperation());
    PlanOptions options;
    options.budgetBytes = budget.count;
    options.backend = backend;
    options.machine = makeMachine(up, down, both, device, copyOverhead, hostMemory);
    const tl::expected<PlannedStep, PlanError> plan = planResidency(step.description, options);
    if (!plan) {
      mlir::Operation *culprit = getOperation();
      if (plan.error().node)
        culprit = step.nodes[*plan.error().node];
      mlir::emitError(culprit->getLoc(), plan.error().message);
      return signalPassFailure();
    }
    update(getOperation(), plan->description);
  }
};

} // namespace
} // namespace pumpgraph::ir
