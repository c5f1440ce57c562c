// SPDX-License-Identifier: Apache-2.0
#include "passes/lower/LowerManaged.h"

#include "passes/ir/MachineOptions.h"
#include "passes/ir/Passes.h"
#include "pumpgraph/graph/Conversion.h"

namespace pumpgraph::ir {

#define GEN_PASS_DEF_LOWERMANAGED
#include "passes/ir/Passes.h.inc"

namespace {

/// Turns a plan into operations of an agent.
struct LowerManaged : impl::LowerManagedBase<LowerManaged> {
  using Base::Base;

  void runOnOperation() override {
    const Description planned = toDescription(getOperation()).description;
    if (const std::string fault = wrongStage(planned, {Stage::Planned}); !fault.empty()) {
      mlir::emitError(getOperation().getLoc(), fault);
      return signalPassFailure();
    }
    for (const Buffer &buffer : planned.buffers)
      if (buffer.continues != noBuffer) {
        mlir::emitError(getOperation().getLoc(), "the plan lets \"")
            << buffer.name << "\" go on at another address; managed memory is at one";
        return signalPassFailure();
      }
    const ManagedOptions options{
        .machine = makeMachine(up, down, both, device, copyOverhead, hostMemory),
        .mayDiscard = discard,
        .advice = {.readMostly = readMostly, .preferHost = preferHost, .accessedBy = accessedBy}};
    update(getOperation(), lowerManaged(withoutPlan(planned), planned, options));
  }
};

} // namespace
} // namespace pumpgraph::ir
