// SPDX-License-Identifier: Apache-2.0
#include "passes/check/CheckResidency.h"

#include "passes/ir/Passes.h"
#include "pumpgraph/graph/Conversion.h"

namespace pumpgraph::ir {

#define GEN_PASS_DEF_CHECKRESIDENCY
#include "passes/ir/Passes.h.inc"

namespace {

/// Reports every violation at the node it happens at, else at the buffer, else at the step.
struct CheckResidency : impl::CheckResidencyBase<CheckResidency> {
  void runOnOperation() override {
    const Lifted step = toDescription(getOperation());
    const std::vector<Violation> violations = checkResidency(step.description);
    for (const Violation &violation : violations)
      report(step, violation);
    if (!violations.empty())
      return signalPassFailure();
    markAllAnalysesPreserved();
  }

private:
  void report(const Lifted &step, const Violation &violation) {
    mlir::Operation *place = getOperation();
    if (violation.buffer)
      place = step.buffers[*violation.buffer];
    if (violation.node)
      place = step.nodes[*violation.node];
    mlir::InFlightDiagnostic diagnostic = mlir::emitError(place->getLoc(), violation.message);
    if (violation.node && violation.buffer)
      diagnostic.attachNote(step.buffers[*violation.buffer]->getLoc()) << "the buffer is defined here";
  }
};

} // namespace
} // namespace pumpgraph::ir
