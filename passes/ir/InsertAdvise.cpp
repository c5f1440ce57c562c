// SPDX-License-Identifier: Apache-2.0
#include "passes/lower/InsertAdvise.h"

#include "passes/ir/Passes.h"
#include "pumpgraph/graph/Conversion.h"

#include <algorithm>

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
    if (std::any_of(lowered.nodes.begin(), lowered.nodes.end(), [](const Node &node) { return isCopy(node.kind); })) {
      mlir::emitError(getOperation().getLoc(), "the step is lowered for virtual memory");
      return signalPassFailure();
    }
    update(getOperation(), insertAdvice(lowered, options));
  }
};

} // namespace
} // namespace pumpgraph::ir
