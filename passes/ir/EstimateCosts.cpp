// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/EstimateCosts.h"

#include "passes/ir/MachineOptions.h"
#include "passes/ir/Passes.h"
#include "pumpgraph/graph/Conversion.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"

namespace pumpgraph::ir {

#define GEN_PASS_DEF_ESTIMATECOSTS
#include "passes/ir/Passes.h.inc"

namespace {

/// Fills in the node times that nobody measured, after taking those of a saved step.
struct EstimateCosts : impl::EstimateCostsBase<EstimateCosts> {
  using Base::Base;

  void runOnOperation() override {
    Description description = toDescription(getOperation()).description;
    if (!from.empty() && failed(takeSavedCosts(description)))
      return signalPassFailure();
    estimateCosts(description, makeMachine(up, down, both, device, copyOverhead, hostMemory));
    update(getOperation(), description);
  }

private:
  /// A step that agrees in no node is another step: that is an error, not a file without effect.
  llvm::LogicalResult takeSavedCosts(Description &description) {
    std::string error = "it is no step";
    mlir::OwningOpRef<mlir::ModuleOp> saved;
    // Not by the file's name: a message would show lines of it as they are, and a terminal would obey them.
    if (const std::unique_ptr<llvm::MemoryBuffer> file = mlir::openInputFile(from, &error))
      saved = mlir::parseSourceString<mlir::ModuleOp>(file->getBuffer(), &getContext(), "node times of " + from);
    if (!saved)
      return mlir::emitError(getOperation().getLoc(), "cannot take node times from '") << from << "': " << error;
    std::size_t merged = 0;
    for (GraphOp graph : saved->getOps<GraphOp>())
      merged += mergeCosts(description, toDescription(graph).description);
    if (merged == 0)
      return mlir::emitError(getOperation().getLoc(), "no node of '")
             << from << "' has a known time and the position and name of one here";
    return mlir::success();
  }
};

} // namespace
} // namespace pumpgraph::ir
