// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/AnnotateAccesses.h"

#include "passes/ir/Passes.h"
#include "pumpgraph/graph/Conversion.h"

#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"

namespace pumpgraph::ir {

#define GEN_PASS_DEF_ANNOTATEACCESSES
#include "passes/ir/Passes.h.inc"

namespace {

/// Joins what is known of each access without running anything.
struct AnnotateAccesses : impl::AnnotateAccessesBase<AnnotateAccesses> {
  using Base::Base;

  void runOnOperation() override {
    KernelTable table;
    if (!tables.empty() && failed(readTables(table)))
      return signalPassFailure();
    Lifted step = toDescription(getOperation());
    const AnnotateStats stats = annotateAccesses(step.description, table);
    for (const AnnotateStats::Disagreement &disagreement : stats.disagreements)
      mlir::emitWarning(step.nodes[disagreement.node]->getLoc(), disagreement.message);
    if (stats.proved + stats.declared + stats.dropped == 0)
      return markAllAnalysesPreserved();
    update(getOperation(), step.description);
  }

private:
  llvm::LogicalResult readTables(KernelTable &table) {
    std::string error;
    const std::unique_ptr<llvm::MemoryBuffer> file = mlir::openInputFile(tables, &error);
    if (!file)
      return mlir::emitError(getOperation().getLoc(), error);
    tl::expected<KernelTable, std::string> parsed = parseKernelTable(std::string_view(file->getBuffer()));
    if (!parsed)
      return mlir::emitError(getOperation().getLoc(), "cannot take access tables from '")
             << tables << "': " << parsed.error();
    table = std::move(*parsed);
    return mlir::success();
  }
};

} // namespace
} // namespace pumpgraph::ir
