// SPDX-License-Identifier: Apache-2.0
/// \file
/// Conversions between the flat description and IR, lossless in both directions: a description comes back equal, except
/// for the order of its edges, which the IR sorts by target node.
#pragma once

#include "pumpgraph/graph/Description.h"
#include "pumpgraph/graph/Dialect.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <vector>

namespace pumpgraph::ir {

/// A description read from IR, with the op behind each of its parts, so that an error in the description can point at
/// the text. The ops are valid until the graph changes.
struct Lifted {
  Description description;
  std::vector<BufferOp> buffers;      ///< by BufferIndex
  std::vector<NodeOpInterface> nodes; ///< by NodeIndex
};

/// The graph must have been verified.
Lifted toDescription(GraphOp graph);

/// Updates `graph` to match `description`. Ops that stand for a node of both stay (with their locations and foreign
/// attributes) and move into order; the others are created or erased. The description must be valid.
void update(GraphOp graph, const Description &description);

/// A module with one graph. The description must be valid.
mlir::OwningOpRef<mlir::ModuleOp> toModule(const Description &description, mlir::MLIRContext &context);

} // namespace pumpgraph::ir
