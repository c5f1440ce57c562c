// SPDX-License-Identifier: Apache-2.0
/// \file
/// What the ops of the `pump` dialect share: by it, passes and conversions need not know every op.

#ifndef PUMPGRAPH_GRAPH_PUMPINTERFACES_TD
#define PUMPGRAPH_GRAPH_PUMPINTERFACES_TD

include "mlir/IR/OpBase.td"

def Pump_NodeOpInterface : OpInterface<"NodeOpInterface"> {
  let description = "Every op that stands for a node of the step, captured or added.";
  let cppNamespace = "::pumpgraph::ir";
  let methods = [
    InterfaceMethod<"What the node is.", "::pumpgraph::NodeKind", "getNodeKind">,
    InterfaceMethod<"Its name, perhaps empty.", "::llvm::StringRef", "getName">,
    InterfaceMethod<"Its position in the captured graph.", "::std::optional<uint32_t>", "getCaptured">,
    InterfaceMethod<"Microseconds, if known.", "::std::optional<::llvm::APFloat>", "getCostUs">,
    InterfaceMethod<"Null: unknown.", "void", "setCostUsAttr", (ins "::mlir::FloatAttr":$cost)>,
    InterfaceMethod<"The nodes it depends on.", "::mlir::OperandRange", "getDeps">,
    InterfaceMethod<"The same, to be changed.", "::mlir::MutableOperandRange", "getDepsMutable">,
    InterfaceMethod<"One pumpgraph::EdgeKind a dependency, or none at all if all are full.",
                    "::llvm::ArrayRef<int8_t>", "getEdgeKinds">,
    InterfaceMethod<"See getEdgeKinds().", "void", "setEdgeKinds", (ins "::llvm::ArrayRef<int8_t>":$kinds)>,
    InterfaceMethod<"What others depend on.", "::mlir::TypedValue<::pumpgraph::ir::TokenType>", "getDone">,
  ];
  let verify = [{ return ::pumpgraph::ir::verifyNode(::llvm::cast<NodeOpInterface>($_op)); }];
}

def Pump_AccessOpInterface : OpInterface<"AccessOpInterface"> {
  let description = [{
    A captured node. Its accesses are kept as parallel arrays, one entry an access; pumpgraph::Access says what each
    means.
  }];
  let cppNamespace = "::pumpgraph::ir";
  let methods = [
    InterfaceMethod<"What the program calls it, perhaps empty.", "::llvm::StringRef", "getLabel">,
    InterfaceMethod<"", "void", "setLabel", (ins "::llvm::StringRef":$label)>,
    InterfaceMethod<"See pumpgraph::Node::isPure.", "bool", "getIsPure">,
    InterfaceMethod<"", "void", "setIsPure", (ins "bool":$pure)>,
    InterfaceMethod<"See pumpgraph::Node::arithmeticUs.", "::std::optional<::llvm::APFloat>", "getArithmeticUs">,
    InterfaceMethod<"Null: nothing is declared.", "void", "setArithmeticUsAttr", (ins "::mlir::FloatAttr":$time)>,
    InterfaceMethod<"", "::mlir::OperandRange", "getBuffers">,
    InterfaceMethod<"", "::mlir::MutableOperandRange", "getBuffersMutable">,
    InterfaceMethod<"", "::llvm::ArrayRef<int64_t>", "getOffsets">,
    InterfaceMethod<"", "void", "setOffsets", (ins "::llvm::ArrayRef<int64_t>":$values)>,
    InterfaceMethod<"", "::llvm::ArrayRef<int64_t>", "getSizes">,
    InterfaceMethod<"", "void", "setSizes", (ins "::llvm::ArrayRef<int64_t>":$values)>,
    InterfaceMethod<"", "::llvm::ArrayRef<int8_t>", "getMay">,
    InterfaceMethod<"", "void", "setMay", (ins "::llvm::ArrayRef<int8_t>":$values)>,
    InterfaceMethod<"", "::llvm::ArrayRef<int8_t>", "getMust">,
    InterfaceMethod<"", "void", "setMust", (ins "::llvm::ArrayRef<int8_t>":$values)>,
    InterfaceMethod<"", "::llvm::ArrayRef<int8_t>", "getEvidence">,
    InterfaceMethod<"", "void", "setEvidence", (ins "::llvm::ArrayRef<int8_t>":$values)>,
    InterfaceMethod<"", "::llvm::ArrayRef<int32_t>", "getParameters">,
    InterfaceMethod<"", "void", "setParameters", (ins "::llvm::ArrayRef<int32_t>":$values)>,
    InterfaceMethod<"", "::llvm::ArrayRef<float>", "getSlowdowns">,
    InterfaceMethod<"", "void", "setSlowdowns", (ins "::llvm::ArrayRef<float>":$values)>,
    InterfaceMethod<"", "::llvm::ArrayRef<bool>", "getAsides">,
    InterfaceMethod<"", "void", "setAsides", (ins "::llvm::ArrayRef<bool>":$values)>,
  ];
  let verify = [{ return ::pumpgraph::ir::verifyAccesses(::llvm::cast<AccessOpInterface>($_op)); }];
}

def Pump_RangeOpInterface : OpInterface<"RangeOpInterface"> {
  let description = "An added node: it concerns whole pages of one buffer.";
  let cppNamespace = "::pumpgraph::ir";
  let methods = [
    InterfaceMethod<"Whose pages.", "::mlir::TypedValue<::pumpgraph::ir::BufferType>", "getBuffer">,
    InterfaceMethod<"Null: the whole buffer. See rangeOf().", "::mlir::IntegerAttr", "getOffsetAttr">,
    InterfaceMethod<"Null: the whole buffer. See rangeOf().", "::mlir::IntegerAttr", "getSizeAttr">,
  ];
  let verify = [{ return ::pumpgraph::ir::verifyRange(::llvm::cast<RangeOpInterface>($_op)); }];
}

#endif
