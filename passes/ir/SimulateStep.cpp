// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/EstimateCosts.h"
#include "passes/ir/MachineOptions.h"
#include "passes/ir/Passes.h"
#include "passes/pipeline/Compile.h"
#include "passes/report/Comparison.h"
#include "pumpgraph/graph/Conversion.h"

namespace pumpgraph::ir {

#define GEN_PASS_DEF_SIMULATESTEP
#include "passes/ir/Passes.h.inc"

namespace {

/// Prints what every step takes in memory, by demand paging, with its operands prefetched, and with its plan if it has
/// one.
struct SimulateStep : impl::SimulateStepBase<SimulateStep> {
  using Base::Base;

  void runOnOperation() override {
    for (GraphOp graph : getOperation().getOps<GraphOp>())
      if (failed(simulate(graph)))
        return signalPassFailure();
    markAllAnalysesPreserved();
  }

private:
  llvm::LogicalResult simulate(GraphOp graph) {
    const Description step = toDescription(graph).description;
    const Machine machine = makeMachine(up, down, both, device, copyOverhead, hostMemory);
    const std::optional<UnifiedMemory> unified = unifiedMemory(graph);
    if (!unified)
      return mlir::failure();
    tl::expected<Compiled, PlanError> compiled = compileSoFar(step, machine);
    if (!compiled)
      return mlir::emitError(graph.getLoc(), compiled.error().message);
    Summary summary(std::move(*compiled));
    std::uint64_t budgetBytes = summary.budgetBytes();
    const bool isPlanned = step.stage != Stage::Captured;
    if (budget.count > 0 && isPlanned && budget.count != budgetBytes)
      return mlir::emitError(graph.getLoc(), "the step is planned for ")
             << budgetBytes << " bytes and cannot be compared at " << budget.count;
    if (!isPlanned) {
      // In memory is not a plan worth a row of its own.
      budgetBytes = budget.count > 0 ? budget.count : budgetBytes;
      summary.lowered.budgetBytes = 0;
      summary.bound = bound(summary.captured, budgetBytes, machine, BoundKind::Must);
      summary.planBound = bound(summary.captured, budgetBytes, machine, BoundKind::May);
    }
    tl::expected<Comparison, std::string> comparison =
        compare(summary.captured, budgetBytes, withinLink(*unified, machine));
    if (!comparison)
      return mlir::emitError(graph.getLoc(), comparison.error());
    summary.comparison = std::move(*comparison);
    print(summary);
    return mlir::success();
  }

  void print(const Summary &summary) const {
    if (json) {
      llvm::outs() << comparisonToJson(summary);
      return;
    }
    llvm::outs() << comparisonToText(summary);
  }

  std::optional<UnifiedMemory> unifiedMemory(GraphOp graph) {
    std::optional<UnifiedMemory> unified = unifiedMemoryOf(memory);
    if (!unified) {
      mlir::emitError(graph.getLoc(), "no unified memory \"")
          << memory.getValue() << "\" is known; there are " << llvm::StringRef(unifiedMemoryNames);
      return std::nullopt;
    }
    if (density > 100 || replays == 0 || touch.count == 0 || touch.count > leafBytes) {
      mlir::emitError(graph.getLoc(), "density has to be at most 100, replays at least 1, touch from 1 to ")
          << leafBytes << "; they are " << density.getValue() << ", " << replays.getValue() << " and " << touch.count;
      return std::nullopt;
    }
    if (!(disk >= 0)) {
      mlir::emitError(graph.getLoc(), "disk has to be a bandwidth of at least 0 GB/s");
      return std::nullopt;
    }
    if (disk > 0)
      unified->diskBytesPerSecond = disk * 1e9;
    if (density > 0)
      unified->densityPercent = density;
    unified->replays = replays;
    unified->touchBytes = touch.count;
    return unified;
  }
};

} // namespace
} // namespace pumpgraph::ir
