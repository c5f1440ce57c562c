// SPDX-License-Identifier: Apache-2.0
/// \file
/// What the reporting passes have in common.
#pragma once

#include "passes/report/Summary.h"
#include "pumpgraph/graph/Dialect.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>

namespace pumpgraph::ir {

using Render = llvm::function_ref<std::string(const Summary &)>;

/// Prints `render` of the figures of every step of the module to standard output.
llvm::LogicalResult printReports(mlir::ModuleOp module, const Machine &machine, Render render);

/// Writes `render` of the figures of the module's only step to `file`, or to standard output if that is "-".
llvm::LogicalResult writeReport(mlir::ModuleOp module, const Machine &machine, llvm::StringRef file, Render render);

} // namespace pumpgraph::ir
