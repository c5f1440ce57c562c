// SPDX-License-Identifier: Apache-2.0
/// \file
/// The ops of the `pump` dialect. docs/reference/ir.md shows each of them.
///
/// docs/design/architecture.md lists the files of a new node kind.

#ifndef PUMPGRAPH_GRAPH_PUMPOPS_TD
#define PUMPGRAPH_GRAPH_PUMPOPS_TD

include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "pumpgraph/graph/PumpDialect.td"
include "pumpgraph/graph/PumpInterfaces.td"

// Every op writes: generic clean-up passes must neither drop nor merge nodes whose tokens nobody uses.
class Pump_Op<string mnemonic, list<Trait> traits = []>
    : Op<Pump_Dialect, mnemonic, !listconcat(traits, [MemoryEffects<[MemWrite]>])>;

def Pump_ByteCount : ConfinedAttr<I64Attr, [IntNonNegative]>;
def Pump_PositiveByteCount : ConfinedAttr<I64Attr, [IntPositive]>;
def Pump_Position : ConfinedAttr<I32Attr, [IntNonNegative]>;

def Pump_GraphOp : Pump_Op<"graph", [IsolatedFromAbove, SingleBlock, NoTerminator, NoRegionArguments, Symbol]> {
  let summary = "a step";
  let description = [{
    Holds the buffers and nodes of one captured graph. `stage` says how far the step has come: `captured` (where it says
    nothing), `planned`, `lowered_virtual` or `lowered_managed`. `budget` is there once the step is planned, `host_bytes`
    (the size of the pinned pool) once it is lowered.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       DefaultValuedAttr<I32Attr, "0">:$stage,
                       DefaultValuedAttr<Pump_PositiveByteCount, "2097152">:$page_bytes,
                       OptionalAttr<Pump_PositiveByteCount>:$budget,
                       OptionalAttr<Pump_PositiveByteCount>:$host_bytes);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `` custom<Stage>($stage) (`page_bytes` `(` $page_bytes^ `)`)? (`budget` `(` $budget^ `)`)? (`host_bytes` `(` $host_bytes^ `)`)?
    attr-dict-with-keyword $body
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Pump_BufferOp : Pump_Op<"buffer", [HasParent<"GraphOp">, OpAsmOpInterface]> {
  let summary = "one allocation with its own virtual address";
  let description = [{
    `frames` names the physical frame of every page, once planned: runs of consecutive frames (`0 to 15`), single ones,
    and pages that are never on the device (`none`, `none * 4`). `resident` lists the ranges that are on the device at
    the step boundary, `mirrored` those of them that are in host memory as well. `hosted` lists the ranges that are in
    host memory at all times, where nodes reach them over the link. `renamable`: another address could stand wherever
    nodes have this one. `present`: all of it is on the device whenever the step does not run, where anybody may read
    and write it. `continues` names the buffer whose value goes on in this one.
  }];
  let arguments = (ins DefaultValuedStrAttr<StrAttr, "">:$name,
                       UnitAttr:$is_private, UnitAttr:$present, UnitAttr:$live_in, UnitAttr:$live_out, UnitAttr:$renamable,
                       Optional<Pump_BufferType>:$continues,
                       Pump_PositiveByteCount:$size,
                       OptionalAttr<Pump_PositiveByteCount>:$address,
                       OptionalAttr<DenseI32ArrayAttr>:$frames,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$resident_offsets,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$resident_sizes,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$mirrored_offsets,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$mirrored_sizes,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$hosted_offsets,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$hosted_sizes);
  let results = (outs Pump_BufferType:$buffer);
  let assemblyFormat = [{
    `` custom<Name>($name) (`private` $is_private^)? (`present` $present^)? (`live_in` $live_in^)? (`live_out` $live_out^)?
    (`renamable` $renamable^)? (`continues` `(` $continues^ `)`)?
    `size` `(` $size `)` `` custom<Address>($address) `` custom<Frames>($frames)
    `` custom<Resident>($resident_offsets, $resident_sizes)
    `` custom<Mirrored>($mirrored_offsets, $mirrored_sizes)
    `` custom<Hosted>($hosted_offsets, $hosted_sizes) attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    void getAsmResultNames(::mlir::OpAsmSetValueNameFn setName);
  }];
}

//===----------------------------------------------------------------------===//
// What a capture can hold
//===----------------------------------------------------------------------===//

class Pump_CapturedOp<string mnemonic, string kind, dag more = (ins)>
    : Pump_Op<mnemonic, [HasParent<"GraphOp">, AttrSizedOperandSegments, OpAsmOpInterface, Pump_NodeOpInterface,
                         Pump_AccessOpInterface]> {
  let arguments = !con((ins DefaultValuedStrAttr<StrAttr, "">:$name), more,
                       (ins UnitAttr:$is_pure,
                            DefaultValuedStrAttr<StrAttr, "">:$label,
                            OptionalAttr<Pump_Position>:$captured,
                            Variadic<Pump_TokenType>:$deps,
                            DefaultValuedAttr<DenseI8ArrayAttr, "{}">:$edge_kinds,
                            Variadic<Pump_BufferType>:$buffers,
                            DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$offsets,
                            DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$sizes,
                            DefaultValuedAttr<DenseI8ArrayAttr, "{}">:$may,
                            DefaultValuedAttr<DenseI8ArrayAttr, "{}">:$must,
                            DefaultValuedAttr<DenseI8ArrayAttr, "{}">:$evidence,
                            DefaultValuedAttr<DenseI32ArrayAttr, "{}">:$parameters,
                            DefaultValuedAttr<DenseF32ArrayAttr, "{}">:$slowdowns,
                            DefaultValuedAttr<DenseBoolArrayAttr, "{}">:$asides,
                            OptionalAttr<F64Attr>:$cost_us,
                            OptionalAttr<F64Attr>:$arithmetic_us));
  let results = (outs Pump_TokenType:$done);
  string tail = [{
    (`pure` $is_pure^)? `` custom<Label>($label) `` custom<Captured>($captured) `` custom<After>($deps, $edge_kinds)
    `` custom<Accesses>($buffers, $offsets, $sizes, $may, $must, $evidence, $parameters, $slowdowns, $asides)
    `` custom<Cost>($cost_us) `` custom<Arithmetic>($arithmetic_us)
    attr-dict
  }];
  let assemblyFormat = "`` custom<Name>($name) " # tail;
  let extraClassDeclaration = "static constexpr ::pumpgraph::NodeKind kind = ::pumpgraph::NodeKind::" # kind # [{;
    ::pumpgraph::NodeKind getNodeKind() { return kind; }
    void getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) { nameToken(*this, setName); }
  }];
}

// What a plan runs again is described like what was captured.
def Pump_RematerializeOp : Pump_CapturedOp<"rematerialize", "Rematerialize", (ins Pump_Position:$repeats)> {
  let summary = "a captured kernel, copy or fill that is run again, and whose results are then as it left them";
  let assemblyFormat = "`` custom<Name>($name) `of` `(` $repeats `)`" # tail;
}

def Pump_KernelOp : Pump_CapturedOp<"kernel", "Kernel"> { let summary = "a kernel launch"; }
def Pump_MemcpyOp : Pump_CapturedOp<"memcpy", "Memcpy"> { let summary = "a captured copy"; }
def Pump_MemsetOp : Pump_CapturedOp<"memset", "Memset"> { let summary = "a captured fill"; }
def Pump_HostOp : Pump_CapturedOp<"host", "Host"> { let summary = "a call of a host function"; }
def Pump_EmptyOp : Pump_CapturedOp<"empty", "Empty"> { let summary = "a node that only joins dependencies"; }
def Pump_ChildGraphOp : Pump_CapturedOp<"child_graph", "ChildGraph"> {
  let summary = "a graph inside the graph; its accesses are the union of its nodes'";
}
def Pump_EventRecordOp : Pump_CapturedOp<"event_record", "EventRecord"> { let summary = "records an event"; }
def Pump_EventWaitOp : Pump_CapturedOp<"event_wait", "EventWait"> { let summary = "waits for an event"; }
def Pump_SemaphoreSignalOp : Pump_CapturedOp<"semaphore_signal", "SemaphoreSignal"> {
  let summary = "signals an external semaphore";
}
def Pump_SemaphoreWaitOp : Pump_CapturedOp<"semaphore_wait", "SemaphoreWait"> {
  let summary = "waits for an external semaphore";
}
def Pump_MemAllocOp : Pump_CapturedOp<"mem_alloc", "MemAlloc"> { let summary = "allocates memory in the graph"; }
def Pump_MemFreeOp : Pump_CapturedOp<"mem_free", "MemFree"> { let summary = "frees memory in the graph"; }
def Pump_BatchMemOpOp : Pump_CapturedOp<"batch_mem_op", "BatchMemOp"> {
  let summary = "writes and waits on single words of memory";
}
def Pump_ConditionalOp : Pump_CapturedOp<"conditional", "Conditional"> {
  let summary = "runs a body graph or not, as a value on the device says";
}
def Pump_OpaqueOp : Pump_CapturedOp<"opaque", "Opaque", (ins StrAttr:$reason)> {
  let summary = "a node that cannot be seen into, and why";
  let assemblyFormat = "`` custom<Name>($name) `reason` `(` $reason `)` " # tail;
}

//===----------------------------------------------------------------------===//
// What a plan adds, and what it is lowered to
//===----------------------------------------------------------------------===//

class Pump_AddedOp<string mnemonic, string kind, dag more = (ins), string syntax = "">
    : Pump_Op<mnemonic, [HasParent<"GraphOp">, OpAsmOpInterface, Pump_NodeOpInterface, Pump_RangeOpInterface]> {
  let arguments = !con((ins DefaultValuedStrAttr<StrAttr, "">:$name,
                            Pump_BufferType:$buffer,
                            OptionalAttr<I64Attr>:$offset,
                            OptionalAttr<I64Attr>:$size), more,
                       (ins OptionalAttr<Pump_Position>:$captured,
                            Variadic<Pump_TokenType>:$deps,
                            DefaultValuedAttr<DenseI8ArrayAttr, "{}">:$edge_kinds,
                            OptionalAttr<F64Attr>:$cost_us));
  let results = (outs Pump_TokenType:$done);
  let assemblyFormat = "`` custom<Name>($name) $buffer `` custom<Range>($offset, $size) " # syntax # [{
    `` custom<Captured>($captured) `` custom<After>($deps, $edge_kinds) `` custom<Cost>($cost_us) attr-dict
  }];
  let extraClassDeclaration = "static constexpr ::pumpgraph::NodeKind kind = ::pumpgraph::NodeKind::" # kind # [{;
    ::pumpgraph::NodeKind getNodeKind() { return kind; }
    void getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) { nameToken(*this, setName); }
  }];
}

def Pump_EvictOp : Pump_AddedOp<"evict", "Evict", (ins UnitAttr:$joined), "(`joined` $joined^)?"> {
  let summary = "device to host; afterwards the host copy is the value";
}
def Pump_PrefetchOp : Pump_AddedOp<"prefetch", "Prefetch", (ins UnitAttr:$joined), "(`joined` $joined^)?"> {
  let summary = "host to device; afterwards the device copy is the value";
}
def Pump_DiscardOp : Pump_AddedOp<"discard", "Discard"> {
  let summary = "the device copy is not needed any more: its frames may be given away without a copy";
}
def Pump_AdviseOp : Pump_AddedOp<"advise", "Advise", (ins I32Attr:$advice), "`` custom<Advice>($advice)"> {
  let summary = "how the range will be used";
}
def Pump_CopyToHostOp : Pump_AddedOp<"to_host", "CopyToHost", (ins Pump_ByteCount:$host_offset, UnitAttr:$joined),
                                     "`host` `(` $host_offset `)` (`joined` $joined^)?"> {
  let summary = "a lowered evict: a copy from the buffer's address into the pinned pool";
}
def Pump_CopyToDeviceOp : Pump_AddedOp<"to_device", "CopyToDevice",
                                       (ins Pump_ByteCount:$host_offset, UnitAttr:$joined),
                                       "`host` `(` $host_offset `)` (`joined` $joined^)?"> {
  let summary = "a lowered prefetch: a copy from the pinned pool to the buffer's address";
}

#endif
