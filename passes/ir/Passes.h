// SPDX-License-Identifier: Apache-2.0
/// \file
/// The passes over the `pump` dialect, as MLIR knows them. The algorithms are in the folders beside this one and know
/// nothing of MLIR; a pass reads the graph, calls one, writes the result back and turns its errors into diagnostics.
/// Those are given at a location, not at an op, whose whole text would follow: a step may have thousands of lines.
#pragma once

#include "passes/analysis/Backend.h"
#include "passes/analysis/Machine.h"
#include "passes/ir/Bytes.h"
#include "passes/lower/InsertAdvise.h"
#include "passes/simulate/UnifiedMemory.h"
#include "pumpgraph/graph/Dialect.h"

#include "mlir/Pass/Pass.h"

#include <memory>
#include <string>

namespace pumpgraph::ir {

#define GEN_PASS_DECL
#include "passes/ir/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/ir/Passes.h.inc"

} // namespace pumpgraph::ir
