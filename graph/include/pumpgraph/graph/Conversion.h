// SPDX-License-Identifier: Apache-2.0
/// \file
/// The flat description ⇄ IR. Nothing is lost either way: a description comes back equal, but for the order of its
/// edges, which the IR keeps by the node they lead to.
#pragma once

#include "pumpgraph/graph/Description.h"
#include "pumpgraph/graph/Dialect.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <vector>

namespace pumpgraph::ir {

/// A description read from IR, and the op that each of its parts came from, so that whoever finds a fault in the
/// description can point at the text. The ops are valid until the graph changes.
struct Lifted {
  Description description;
  std::vector<BufferOp> buffers;      ///< by BufferIndex
  std::vector<NodeOpInterface> nodes; ///< by NodeIndex
};

/// The graph must have been verified.
Lifted toDescription(GraphOp graph);

/// Makes `graph` say what `description` says. Ops that stand for a node of both stay (with their locations and foreign
/// attributes) and are moved into order; the others are created or erased. The description must be valid.
void update(GraphOp graph, const Description &description);

/// A module with one graph. The description must be valid.
mlir::OwningOpRef<mlir::ModuleOp> toModule(const Description &description, mlir::MLIRContext &context);

} // namespace pumpgraph::ir
