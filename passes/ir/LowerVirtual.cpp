// SPDX-License-Identifier: Apache-2.0
#include "passes/lower/LowerVirtual.h"

#include "passes/ir/Passes.h"
#include "pumpgraph/graph/Conversion.h"

namespace pumpgraph::ir {

#define GEN_PASS_DEF_LOWERVIRTUAL
#include "passes/ir/Passes.h.inc"

namespace {

/// Turns a plan into copies between the buffers' addresses and the pinned pool, and edges.
struct LowerVirtual : impl::LowerVirtualBase<LowerVirtual> {
  void runOnOperation() override {
    const Description planned = toDescription(getOperation()).description;
    if (const std::string fault = wrongStage(planned, {Stage::Planned}); !fault.empty()) {
      mlir::emitError(getOperation().getLoc(), fault);
      return signalPassFailure();
    }
    update(getOperation(), lowerVirtual(planned));
  }
};

} // namespace
} // namespace pumpgraph::ir
