// SPDX-License-Identifier: Apache-2.0
#include "passes/check/CheckResidency.h"

#include "passes/ir/Passes.h"
#include "passes/ir/Violations.h"

namespace pumpgraph::ir {

#define GEN_PASS_DEF_CHECKMANAGED
#include "passes/ir/Passes.h.inc"

namespace {

struct CheckManaged : impl::CheckManagedBase<CheckManaged> {
  void runOnOperation() override {
    const Lifted step = toDescription(getOperation());
    const std::vector<Violation> violations = checkManaged(step.description);
    report(getOperation(), step, violations);
    if (!violations.empty())
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
} // namespace pumpgraph::ir
