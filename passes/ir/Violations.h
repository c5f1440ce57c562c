// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a checker found, as diagnostics.
#pragma once

#include "passes/check/CheckResidency.h"
#include "pumpgraph/graph/Conversion.h"

namespace pumpgraph::ir {

/// Reports every violation at the node it happens at, else at the buffer, else at the step.
inline void report(GraphOp graph, const Lifted &step, const std::vector<Violation> &violations) {
  for (const Violation &violation : violations) {
    mlir::Operation *place = graph;
    if (violation.buffer)
      place = step.buffers[*violation.buffer];
    if (violation.node)
      place = step.nodes[*violation.node];
    mlir::InFlightDiagnostic diagnostic = mlir::emitError(place->getLoc(), violation.message);
    if (violation.node && violation.buffer)
      diagnostic.attachNote(step.buffers[*violation.buffer]->getLoc()) << "the buffer is defined here";
  }
}

} // namespace pumpgraph::ir
