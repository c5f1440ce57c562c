// SPDX-License-Identifier: Apache-2.0
/// \file
/// The `pump` dialect in C++, as TableGen generates it from PumpDialect.td and PumpOps.td.
#pragma once

#include "pumpgraph/graph/Description.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <optional>

namespace pumpgraph::ir {

class NodeOpInterface;
class AccessOpInterface;
class RangeOpInterface;

// The verifiers of the interfaces. Those of one op are its own methods.
llvm::LogicalResult verifyNode(NodeOpInterface node);
llvm::LogicalResult verifyAccesses(AccessOpInterface node);
llvm::LogicalResult verifyRange(RangeOpInterface node);

/// Gives a node's token the name it has in text: %k17, %relu.evict.
void nameToken(NodeOpInterface node, mlir::OpAsmSetValueNameFn setName);

} // namespace pumpgraph::ir

#include "graph/PumpDialect.h.inc"

#define GET_TYPEDEF_CLASSES
#include "graph/PumpTypes.h.inc"

#include "graph/PumpInterfaces.h.inc"

#define GET_OP_CLASSES
#include "graph/PumpOps.h.inc"

namespace pumpgraph::ir {

/// The op that defines the buffer of an added node.
BufferOp bufferOf(RangeOpInterface node);

/// The bytes that an added node concerns.
Range rangeOf(RangeOpInterface node);

/// Two parallel arrays of a buffer, equally long, as ranges.
std::vector<Range> rangesOf(llvm::ArrayRef<std::int64_t> offsets, llvm::ArrayRef<std::int64_t> sizes);

} // namespace pumpgraph::ir
