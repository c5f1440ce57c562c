// SPDX-License-Identifier: Apache-2.0
#include "passes/lower/LowerVirtual.h"

#include "passes/ir/Passes.h"
#include "passes/ir/Stage.h"
#include "pumpgraph/graph/Conversion.h"

namespace pumpgraph::ir {

#define GEN_PASS_DEF_LOWERVIRTUAL
#include "passes/ir/Passes.h.inc"

namespace {

/// Turns a plan into copies between the buffers' addresses and the pinned pool, and edges.
struct LowerVirtual : impl::LowerVirtualBase<LowerVirtual> {
  void runOnOperation() override {
    const Description planned = toDescription(getOperation()).description;
    if (!isPlanned(planned))
      return refuse("the step has no plan to lower");
    if (isLowered(planned))
      return refuse("the step is lowered already");
    update(getOperation(), lowerVirtual(planned));
  }

private:
  void refuse(const char *reason) {
    mlir::emitError(getOperation().getLoc(), reason);
    signalPassFailure();
  }
};

} // namespace
} // namespace pumpgraph::ir
