// SPDX-License-Identifier: Apache-2.0
#include "passes/ir/MachineOptions.h"
#include "passes/ir/Passes.h"
#include "passes/ir/Report.h"

namespace pumpgraph::ir {

#define GEN_PASS_DEF_PRINTSUMMARY
#include "passes/ir/Passes.h.inc"

namespace {

/// Prints the figures of every step to standard output.
struct PrintSummary : impl::PrintSummaryBase<PrintSummary> {
  using Base::Base;

  void runOnOperation() override {
    const Machine machine = makeMachine(up, down, both, device, copyOverhead, hostMemory);
    const auto render = [](const Summary &summary) { return toText(summary, {}); };
    if (failed(printReports(getOperation(), machine, render)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
} // namespace pumpgraph::ir
