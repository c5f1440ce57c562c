// SPDX-License-Identifier: Apache-2.0
#include "passes/lower/InsertAdvise.h"

#include "passes/ir/Passes.h"
#include "pumpgraph/graph/Conversion.h"

namespace pumpgraph::ir {

#define GEN_PASS_DEF_INSERTADVISE
#include "passes/ir/Passes.h.inc"

namespace {

/// Tells the driver what it should know of a step's managed memory.
struct InsertAdvise : impl::InsertAdviseBase<InsertAdvise> {
  using Base::Base;

  void runOnOperation() override {
    const AdviceOptions options{.readMostly = readMostly, .preferHost = preferHost, .accessedBy = accessedBy};
    const Description lowered = toDescription(getOperation()).description;
    if (const std::string fault = wrongStage(lowered, {Stage::LoweredManaged}); !fault.empty()) {
      mlir::emitError(getOperation().getLoc(), fault);
      return signalPassFailure();
    }
    update(getOperation(), insertAdvice(lowered, options));
  }
};

} // namespace
} // namespace pumpgraph::ir
