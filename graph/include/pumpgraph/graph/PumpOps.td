// SPDX-License-Identifier: Apache-2.0
/// \file
/// The ops of the `pump` dialect. docs/reference/ir.md shows each of them, and its tables are made from here: an op's
/// summary, and of each argument the clause and its meaning.
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
  let arguments = (ins
    Arg<SymbolNameAttr, "`@step`: its name">:$sym_name,
    Arg<DefaultValuedAttr<I32Attr, "0">, "`stage(s)`: one of those above; by default `captured`">:$stage,
    Arg<DefaultValuedAttr<Pump_PositiveByteCount, "2097152">,
        "`page_bytes(n)`: the size of page and frame, by default 2 MiB">:$page_bytes,
    Arg<OptionalAttr<Pump_PositiveByteCount>, "`budget(n)`: of a planned step">:$budget,
    Arg<OptionalAttr<Pump_PositiveByteCount>,
        "`host_bytes(n)`: the pinned pool of a step lowered for virtual memory">:$host_bytes);
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
  let arguments = (ins
    Arg<DefaultValuedStrAttr<StrAttr, "">, "`\"name\"`: the program's">:$name,
    Arg<UnitAttr, "`private`: only captured steps touch it, so it may leave the device">:$is_private,
    Arg<UnitAttr, "`present`: private, and at its address whenever the step does not run">:$present,
    Arg<UnitAttr, "`live_in`: its value at the start is read">:$live_in,
    Arg<UnitAttr, "`live_out`: its value at the end is needed">:$live_out,
    Arg<UnitAttr, "`renamable`: its value may continue at another address">:$renamable,
    Arg<Optional<Pump_BufferType>,
        "`continues(%b)`: takes over the value of `%b` from some node on">:$continues,
    Arg<Pump_PositiveByteCount, "`size(n)`: its bytes">:$size,
    Arg<OptionalAttr<Pump_PositiveByteCount>, "`address(a)`: on the device; without it unknown">:$address,
    Arg<OptionalAttr<DenseI32ArrayAttr>,
        "`frames(...)`: the frame of each page: runs, single frames, `none` for pages never on the device">:$frames,
    Arg<DefaultValuedAttr<DenseI64ArrayAttr, "{}">,
        "`resident(ranges)`: on the device at the boundary">:$resident_offsets,
    DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$resident_sizes,
    Arg<DefaultValuedAttr<DenseI64ArrayAttr, "{}">,
        "`mirrored(ranges)`: resident, and in host memory too">:$mirrored_offsets,
    DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$mirrored_sizes,
    Arg<DefaultValuedAttr<DenseI64ArrayAttr, "{}">, "`hosted(ranges)`: in host memory at all times">:$hosted_offsets,
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
  let arguments = !con((ins
    Arg<DefaultValuedStrAttr<StrAttr, "">, "`\"name\"`: as captured: a kernel's symbol">:$name), more, (ins
    Arg<UnitAttr, "`pure`: its writes follow from its reads and parameters, and are its only effect">:$is_pure,
    Arg<DefaultValuedStrAttr<StrAttr, "">, "`label(\"text\")`: the program's name of the node">:$label,
    Arg<OptionalAttr<Pump_Position>, "`node(i)`: its place in the captured graph">:$captured,
    Arg<Variadic<Pump_TokenType>, "`after(%t, ...)`: starts when these nodes have completed">:$deps,
    Arg<DefaultValuedAttr<DenseI8ArrayAttr, "{}">,
        "`programmatic`: behind a token, between two kernels: starts while that one runs">:$edge_kinds,
    Arg<Variadic<Pump_BufferType>, "`%buffer`: the accessed buffer">:$buffers,
    Arg<DefaultValuedAttr<DenseI64ArrayAttr, "{}">, "`[offset, size]`: the accessed bytes">:$offsets,
    DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$sizes,
    Arg<DefaultValuedAttr<DenseI8ArrayAttr, "{}">,
        "`read`, `write`, `readwrite`: the most that the access does">:$may,
    Arg<DefaultValuedAttr<DenseI8ArrayAttr, "{}">,
        "`must(mode)`: certain: reads, or overwrites, every byte">:$must,
    Arg<DefaultValuedAttr<DenseI8ArrayAttr, "{}">, "evidence: how the access is known, see below">:$evidence,
    Arg<DefaultValuedAttr<DenseI32ArrayAttr, "{}">,
        "`parameter(i)`: the kernel parameter with the pointer, if there is exactly one">:$parameters,
    Arg<DefaultValuedAttr<DenseF32ArrayAttr, "{}">,
        "`slowdown(f)`: time over hosted pages, as measured, over the "
        "[predicted](../design/cost-model.md#prediction) time; by default 1">:$slowdowns,
    Arg<DefaultValuedAttr<DenseBoolArrayAttr, "{}">,
        "`aside`: of a `pure` node with a known parameter: the value here reaches no other write of the node, and a "
        "repetition has other memory there">:$asides,
    Arg<OptionalAttr<F64Attr>, "`cost(us)`: its time with all operands on the device">:$cost_us,
    Arg<OptionalAttr<F64Attr>,
        "`arithmetic(us)`: the time of its declared arithmetic, for nodes without `cost`">:$arithmetic_us));
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
def Pump_RematerializeOp : Pump_CapturedOp<"rematerialize", "Rematerialize",
                                          (ins Arg<Pump_Position, "`of(i)`: the captured node">:$repeats)> {
  let summary = "a `pure` captured kernel, copy or fill runs again; its results are then as it left them";
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
def Pump_OpaqueOp : Pump_CapturedOp<"opaque", "Opaque",
                                   (ins Arg<StrAttr, "`reason(\"text\")`: why">:$reason)> {
  let summary = "a node that cannot be seen into";
  let assemblyFormat = "`` custom<Name>($name) `reason` `(` $reason `)` " # tail;
}

//===----------------------------------------------------------------------===//
// What a plan adds, and what it is lowered to
//===----------------------------------------------------------------------===//

class Pump_AddedOp<string mnemonic, string kind, dag more = (ins), string syntax = "">
    : Pump_Op<mnemonic, [HasParent<"GraphOp">, OpAsmOpInterface, Pump_NodeOpInterface, Pump_RangeOpInterface]> {
  let arguments = !con((ins
    Arg<DefaultValuedStrAttr<StrAttr, "">, "`\"name\"`: as captured: a kernel's symbol">:$name,
    Arg<Pump_BufferType, "`%buffer`: private, but for advice">:$buffer,
    Arg<OptionalAttr<I64Attr>, "`[offset, size]`: whole pages of it; all of them without it">:$offset,
    OptionalAttr<I64Attr>:$size), more, (ins
    Arg<OptionalAttr<Pump_Position>, "`node(i)`: its place in the captured graph">:$captured,
    Arg<Variadic<Pump_TokenType>, "`after(%t, ...)`: starts when these nodes have completed">:$deps,
    Arg<DefaultValuedAttr<DenseI8ArrayAttr, "{}">,
        "`programmatic`: behind a token, between two kernels: starts while that one runs">:$edge_kinds,
    Arg<OptionalAttr<F64Attr>, "`cost(us)`: its time with all operands on the device">:$cost_us));
  let results = (outs Pump_TokenType:$done);
  let assemblyFormat = "`` custom<Name>($name) $buffer `` custom<Range>($offset, $size) " # syntax # [{
    `` custom<Captured>($captured) `` custom<After>($deps, $edge_kinds) `` custom<Cost>($cost_us) attr-dict
  }];
  let extraClassDeclaration = "static constexpr ::pumpgraph::NodeKind kind = ::pumpgraph::NodeKind::" # kind # [{;
    ::pumpgraph::NodeKind getNodeKind() { return kind; }
    void getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) { nameToken(*this, setName); }
  }];
}

defvar joinedWish = (ins Arg<UnitAttr, "`joined`: wish for a row (rule 10)">:$joined);
defvar copyArguments = (ins
  Arg<Pump_ByteCount, "`host(offset)`: the place there">:$host_offset,
  Arg<UnitAttr, "`joined`: a row of the previous copy">:$joined);
defvar copySyntax = "`host` `(` $host_offset `)` (`joined` $joined^)?";

def Pump_EvictOp : Pump_AddedOp<"evict", "Evict", joinedWish, "(`joined` $joined^)?"> {
  let summary = "device to host; afterwards the host copy is the value";
}
def Pump_PrefetchOp : Pump_AddedOp<"prefetch", "Prefetch", joinedWish, "(`joined` $joined^)?"> {
  let summary = "host to device; afterwards the device copy is the value";
}
def Pump_DiscardOp : Pump_AddedOp<"discard", "Discard"> {
  let summary = "afterwards the device copy is dead; its frames are free without a copy";
}
def Pump_AdviseOp : Pump_AddedOp<"advise", "Advise",
    (ins Arg<I32Attr, "`read_mostly`, `prefer_host`, `prefer_device`, `accessed_by`: the advice">:$advice),
    "`` custom<Advice>($advice)"> {
  let summary = "how the range will be used; nothing moves";
}
def Pump_CopyToHostOp : Pump_AddedOp<"to_host", "CopyToHost", copyArguments, copySyntax> {
  let summary = "a lowered evict: into the pinned pool";
}
def Pump_CopyToDeviceOp : Pump_AddedOp<"to_device", "CopyToDevice", copyArguments, copySyntax> {
  let summary = "a lowered prefetch: from the pinned pool";
}

#endif
