// SPDX-License-Identifier: Apache-2.0
#include "passes/ir/MachineOptions.h"
#include "passes/ir/Passes.h"
#include "passes/ir/Report.h"

namespace pumpgraph::ir {

#define GEN_PASS_DEF_EXPORTTIMELINE
#include "passes/ir/Passes.h.inc"

namespace {

/// Writes the predicted timeline as Chrome trace events.
struct ExportTimeline : impl::ExportTimelineBase<ExportTimeline> {
  using Base::Base;

  void runOnOperation() override {
    const Machine machine = makeMachine(up, down, both, device, copyOverhead, hostMemory);
    if (failed(writeReport(getOperation(), machine, file, timelineToJson)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
} // namespace pumpgraph::ir
