// SPDX-License-Identifier: Apache-2.0
/// \file
/// The `custom<...>` parts of the ops' syntax. Each printer writes its own leading space, or nothing at all.
#pragma once

#include "pumpgraph/graph/Dialect.h"

namespace pumpgraph::ir {

using UnresolvedOperands = llvm::SmallVectorImpl<mlir::OpAsmParser::UnresolvedOperand>;

/// `"name"`, or nothing if it is empty.
mlir::ParseResult parseStage(mlir::OpAsmParser &parser, mlir::IntegerAttr &stage);
void printStage(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::IntegerAttr stage);

mlir::ParseResult parseName(mlir::OpAsmParser &parser, mlir::StringAttr &name);
void printName(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::StringAttr name);

/// `address(0x7f0000000000)`
mlir::ParseResult parseAddress(mlir::OpAsmParser &parser, mlir::IntegerAttr &address);
void printAddress(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::IntegerAttr address);

/// `frames(0 to 15, none * 2, 7)`
mlir::ParseResult parseFrames(mlir::OpAsmParser &parser, mlir::DenseI32ArrayAttr &frames);
void printFrames(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::DenseI32ArrayAttr frames);

/// `resident([0, 2097152], [8388608, 2097152])`
mlir::ParseResult parseResident(mlir::OpAsmParser &parser, mlir::DenseI64ArrayAttr &offsets,
                                mlir::DenseI64ArrayAttr &sizes);
void printResident(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::DenseI64ArrayAttr offsets,
                   mlir::DenseI64ArrayAttr sizes);

/// `mirrored([0, 2097152])`
mlir::ParseResult parseMirrored(mlir::OpAsmParser &parser, mlir::DenseI64ArrayAttr &offsets,
                                mlir::DenseI64ArrayAttr &sizes);
void printMirrored(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::DenseI64ArrayAttr offsets,
                   mlir::DenseI64ArrayAttr sizes);

/// `hosted([0, 2097152])`
mlir::ParseResult parseHosted(mlir::OpAsmParser &parser, mlir::DenseI64ArrayAttr &offsets,
                              mlir::DenseI64ArrayAttr &sizes);
void printHosted(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::DenseI64ArrayAttr offsets,
                 mlir::DenseI64ArrayAttr sizes);

/// `label("layer3.conv2 backward (mm)")`, or nothing if it is empty
mlir::ParseResult parseLabel(mlir::OpAsmParser &parser, mlir::StringAttr &label);
void printLabel(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::StringAttr label);

/// `node(17)`
mlir::ParseResult parseCaptured(mlir::OpAsmParser &parser, mlir::IntegerAttr &captured);
void printCaptured(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::IntegerAttr captured);

/// `after(%k0, %k1 programmatic)`
mlir::ParseResult parseAfter(mlir::OpAsmParser &parser, UnresolvedOperands &deps, mlir::DenseI8ArrayAttr &edgeKinds);
void printAfter(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::OperandRange deps,
                mlir::DenseI8ArrayAttr edgeKinds);

/// `[read %w[0, 4096] proved, write %a[0, 8192] declared must(write) parameter(1)]`
mlir::ParseResult parseAccesses(mlir::OpAsmParser &parser, UnresolvedOperands &buffers,
                                mlir::DenseI64ArrayAttr &offsets, mlir::DenseI64ArrayAttr &sizes,
                                mlir::DenseI8ArrayAttr &may, mlir::DenseI8ArrayAttr &must,
                                mlir::DenseI8ArrayAttr &evidence, mlir::DenseI32ArrayAttr &parameters,
                                mlir::DenseF32ArrayAttr &slowdowns, mlir::DenseBoolArrayAttr &asides);
void printAccesses(mlir::OpAsmPrinter &printer, AccessOpInterface op, mlir::OperandRange buffers,
                   mlir::DenseI64ArrayAttr offsets, mlir::DenseI64ArrayAttr sizes, mlir::DenseI8ArrayAttr may,
                   mlir::DenseI8ArrayAttr must, mlir::DenseI8ArrayAttr evidence, mlir::DenseI32ArrayAttr parameters,
                   mlir::DenseF32ArrayAttr slowdowns, mlir::DenseBoolArrayAttr asides);

/// `cost(123.4)`: the shortest decimal that reads back as the same number of microseconds.
mlir::ParseResult parseCost(mlir::OpAsmParser &parser, mlir::FloatAttr &cost);
void printCost(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::FloatAttr cost);

/// `arithmetic(123.4)`, likewise
mlir::ParseResult parseArithmetic(mlir::OpAsmParser &parser, mlir::FloatAttr &time);
void printArithmetic(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::FloatAttr time);

/// `[0, 2097152]`, or nothing for the whole buffer
mlir::ParseResult parseRange(mlir::OpAsmParser &parser, mlir::IntegerAttr &offset, mlir::IntegerAttr &size);
void printRange(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::IntegerAttr offset, mlir::IntegerAttr size);

/// `read_mostly`
mlir::ParseResult parseAdvice(mlir::OpAsmParser &parser, mlir::IntegerAttr &advice);
void printAdvice(mlir::OpAsmPrinter &printer, mlir::Operation *op, mlir::IntegerAttr advice);

} // namespace pumpgraph::ir
