// SPDX-License-Identifier: Apache-2.0
/// \file
/// The passes over the `pump` dialect. docs/passes.md is generated from here.

#ifndef PUMPGRAPH_PASSES_IR_PASSES_TD
#define PUMPGRAPH_PASSES_IR_PASSES_TD

include "mlir/Pass/PassBase.td"

class GraphPass<string argument> : Pass<argument, "::pumpgraph::ir::GraphOp">;

// Reports are about all steps of a file, in its order: passes over single graphs run side by side, in any order.
class ReportPass<string argument> : Pass<argument, "::mlir::ModuleOp">;

// The machine that a step is planned for or drawn on. The defaults are those of passes/analysis/Machine.h.
defvar machineOptions = [
  Option<"up", "up", "double", "::pumpgraph::Machine().upBytesPerSecond / 1e9", "GB/s from host to device, alone">,
  Option<"down", "down", "double", "::pumpgraph::Machine().downBytesPerSecond / 1e9",
         "GB/s from device to host, alone">,
  Option<"both", "both", "double", "::pumpgraph::Machine().bothBytesPerSecond / 1e9",
         "GB/s of both directions at once, in all">,
  Option<"device", "device", "double", "::pumpgraph::Machine().deviceBytesPerSecond / 1e9",
         "GB/s of device memory, read and written">,
  Option<"copyOverhead", "copy-overhead", "double", "::pumpgraph::Machine().copyOverheadUs",
         "microseconds that a copy takes whatever its size">,
  Option<"hostMemory", "host-memory", "::pumpgraph::ir::Bytes", "::pumpgraph::ir::Bytes()",
         "pinned host memory that may hold what left the device; 0: without limit">
];

def AnnotateAccesses : GraphPass<"annotate-accesses"> {
  let summary = "Join what is known of each access: mode, evidence, what must happen";
  let description = [{
    Improves accesses of evidence `assumed` or `observed`. A copy must read its source and must overwrite its
    destination, a fill must overwrite its destination (`proved`). What a kernel reaches through a parameter declared `T const *` may only be read
    (`declared`); the parameter's type comes from the kernel's mangled name.

    `tables` names a file that the Clang plugin wrote (`-fplugin-arg-pumpgraph-json=FILE`), a line of JSON a kernel:
    ```json
    {"kernel": "_Z3addPfS_", "slots": [{"parameter": 0, "offset": 0, "may": "read"},
                                       {"parameter": 1, "offset": 0, "may": "write", "atomic": true} ] }
    ```
    A slot is an address among a kernel's parameters, `offset` bytes from the start of one. `may` is `none`, `read`,
    `write` or `readwrite`; a slot can be `escapes`, `atomic`, `holds_pointers`, `unresolved`, a kernel `other_memory`, as
    in `runtime/include/pumpgraph/access_table.h`. Accesses of these kernels that are not `proved` yet get the mode of their
    parameter, of all slots together where the parameter is unknown, and become `proved`; those through slots that touch
    nothing go. Ranges stay, and overwrites are not used: both depend on launches, which a saved step does not have. Slots
    that escape or are unresolved, and what is no slot, change nothing. Where a table says that more may happen than was
    `declared`, or where more was `observed` than a table or a type says, there is a warning. What was observed overrules
    nothing, and is nothing to plan by.

    Before:
    ```mlir
    pump.graph @step {
      %x = pump.buffer "x" size(4096)
      %y = pump.buffer "y" size(4096)
      %k0 = pump.kernel "_Z3addiPKfPf" node(0) [readwrite %x[0, 4096] assumed parameter(1),
                                                readwrite %y[0, 4096] assumed parameter(2)]
    }
    ```
    After `annotate-accesses`:
    ```mlir
    pump.graph @step {
      %x = pump.buffer "x" size(4096)
      %y = pump.buffer "y" size(4096)
      %k0 = pump.kernel "_Z3addiPKfPf" node(0) [read %x[0, 4096] declared parameter(1),
                                                readwrite %y[0, 4096] assumed parameter(2)]
    }
    ```
  }];
  let options = [Option<"tables", "tables", "std::string", "", "JSON file with modes of kernels' parameters">];
}

def EstimateCosts : GraphPass<"estimate-costs"> {
  let summary = "Give nodes of unknown cost the time that their bytes need";
  let description = [{
    A kernel or fill costs its bytes over the bandwidth of device memory, a copy to or from the host its bytes over that
    of the link, each plus what a node costs whatever it does; an empty node costs nothing. Where more than 32 accesses
    may touch the whole of one range, none of them `proved`, they are taken to pass over it 32 times together. Known costs stay. With
    `from`, node times of a saved step are taken first, where position and name agree.

    Before:
    ```mlir
    pump.graph @step {
      %x = pump.buffer "x" size(39000000)
      %k0 = pump.kernel "scale" node(0) [readwrite %x[0, 39000000] assumed]
      %n1 = pump.empty node(1) after(%k0)
    }
    ```
    After `estimate-costs{device=3900}`:
    ```mlir
    pump.graph @step {
      %x = pump.buffer "x" size(39000000)
      %k0 = pump.kernel "scale" node(0) [readwrite %x[0, 39000000] assumed] cost(21.6)
      %n1 = pump.empty node(1) after(%k0) cost(0.0)
    }
    ```
  }];
  let options = [Option<"from", "from", "std::string", "", "file with the same step and known node times">]
                # machineOptions;
}

def PlanResidency : GraphPass<"plan-residency"> {
  let summary = "Choose which bytes are in which frame at which time, under a budget";
  let description = [{
    Inserts `pump.evict`, `pump.prefetch` and `pump.discard`, and names a frame for every page. Nodes of unknown cost
    count as free: run estimate-costs first. A step that fits gets frames and no new node. The step must not have been
    planned before. docs/planner.md tells how.

    Before:
    ```mlir
    pump.graph @step {
      %a = pump.buffer "a" private size(4194304)
      %b = pump.buffer "b" private size(4194304)
      %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
      %k1 = pump.kernel "loss" node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
      %k2 = pump.kernel "backward" node(2) after(%k1) [read %a[0, 4194304] declared] cost(100.0)
    }
    ```
    After `plan-residency{budget=4MiB}`:
    ```mlir
    pump.graph @step stage(planned) budget(4194304) {
      %a = pump.buffer "a" private size(4194304) frames(0 to 1)
      %b = pump.buffer "b" private size(4194304) frames(0 to 1)
      %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
      %a.evict = pump.evict %a after(%k0)
      %k1 = pump.kernel "loss" node(1) after(%k0, %a.evict) [write %b[0, 4194304] declared must(write)] cost(100.0)
      %a.prefetch = pump.prefetch %a after(%k1)
      %k2 = pump.kernel "backward" node(2) after(%k1, %a.prefetch) [read %a[0, 4194304] declared] cost(100.0)
    }
    ```
  }];
  let options = [Option<"budget", "budget", "::pumpgraph::ir::Bytes", "::pumpgraph::ir::Bytes()",
                        "device memory for all frames; 0: as much as the step needs">,
                 Option<"backend", "backend", "::pumpgraph::Backend", "::pumpgraph::Backend::Virtual",
                        "what the plan is for", [{::llvm::cl::values(
                          clEnumValN(::pumpgraph::Backend::Virtual, "virtual", "copies and edges"),
                          clEnumValN(::pumpgraph::Backend::Managed, "managed", "an agent on managed memory"),
                          clEnumValN(::pumpgraph::Backend::ManagedUnknown, "managed-unknown",
                                     "the same where not every access is known"))}]>]
                # machineOptions;
}

def LowerVirtual : GraphPass<"lower-virtual"> {
  let summary = "Turn a plan into copies and edges";
  let description = [{
    Evictions become `pump.to_host` and prefetches `pump.to_device`, each with its place in the pinned pool; discards
    become the edges they stood for; neighbouring transfers are joined, and small ones of one size stay rows of common copies where
    their places are at one distance; programmatic edges on which a frame is handed
    over become full ones. No captured node is dropped.

    A step with copies consists of few, long chains afterwards, for the more streams the driver runs it on, the slower the copies: all
    programmatic edges become full ones, captured edges that others imply are left out, and the copies of a direction
    follow one another.

    Before:
    ```mlir
    pump.graph @step stage(planned) budget(4194304) {
      %a = pump.buffer "a" private size(4194304) frames(0 to 1)
      %b = pump.buffer "b" private size(4194304) frames(0 to 1)
      %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
      %a.evict = pump.evict %a after(%k0)
      %k1 = pump.kernel "loss" node(1) after(%k0, %a.evict) [write %b[0, 4194304] declared must(write)] cost(100.0)
      %a.prefetch = pump.prefetch %a after(%k1)
      %k2 = pump.kernel "backward" node(2) after(%k1, %a.prefetch) [read %a[0, 4194304] declared] cost(100.0)
    }
    ```
    After `lower-virtual`:
    ```mlir
    pump.graph @step stage(lowered_virtual) budget(4194304) host_bytes(4194304) {
      %a = pump.buffer "a" private size(4194304) frames(0 to 1)
      %b = pump.buffer "b" private size(4194304) frames(0 to 1)
      %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
      %a.to_host = pump.to_host %a host(0) after(%k0)
      %k1 = pump.kernel "loss" node(1) after(%k0, %a.to_host) [write %b[0, 4194304] declared must(write)] cost(100.0)
      %a.to_device = pump.to_device %a host(0) after(%k1)
      %k2 = pump.kernel "backward" node(2) after(%k1, %a.to_device) [read %a[0, 4194304] declared] cost(100.0)
    }
    ```
  }];
}

// What the driver is told of managed memory. The defaults are those of passes/lower/InsertAdvise.h.
defvar adviceOptions = [
  Option<"readMostly", "read-mostly", "bool", "::pumpgraph::AdviceOptions().readMostly",
         "buffers that leave and that nodes only read keep their copy in host memory">,
  Option<"preferHost", "prefer-host", "bool", "::pumpgraph::AdviceOptions().preferHost",
         "hosted ranges stay in host memory">,
  Option<"accessedBy", "accessed-by", "bool", "::pumpgraph::AdviceOptions().accessedBy",
         "hosted ranges are mapped before they are touched">
];

def LowerManaged : GraphPass<"lower-managed"> {
  let summary = "Turn a plan into operations of an agent on managed memory";
  let description = [{
    Of the plan it takes who is in which frame at which time, and has pages leave and come back accordingly
    (docs/managed.md). Managed memory has one copy of every page, so what the plan gives up because its host copy is good is
    evicted, and what it gives up because it is dead is discarded, unless not every access is known (`discard=false`).
    Neighbouring pages that move alike move together. A captured node that an operation has an edge to waits for it; a
    prefetch without one is a hint, because it is predicted to be over long before it is needed. What has no value yet is
    prefetched as well, so that it is not written by faults. Then the advice of `insert-advise` is inserted; nothing is read
    mostly where not every access is known.

    Before:
    ```mlir
    pump.graph @step stage(planned) budget(4194304) {
      %a = pump.buffer "a" private size(4194304) frames(0 to 1)
      %b = pump.buffer "b" private size(4194304) frames(0 to 1)
      %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
      %a.evict = pump.evict %a after(%k0)
      %k1 = pump.kernel "loss" node(1) after(%k0, %a.evict) [write %b[0, 4194304] declared must(write)] cost(100.0)
      %a.prefetch = pump.prefetch %a after(%k1)
      %k2 = pump.kernel "backward" node(2) after(%k1, %a.prefetch) [read %a[0, 4194304] declared] cost(100.0)
    }
    ```
    After `lower-managed`:
    ```mlir
    pump.graph @step stage(lowered_managed) budget(4194304) {
      %a = pump.buffer "a" private size(4194304) frames(0 to 1)
      %b = pump.buffer "b" private size(4194304) frames(0 to 1)
      %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
      %a.evict = pump.evict "evict a" %a after(%k0)
      %b.prefetch = pump.prefetch "prefetch b" %b after(%k0, %a.evict)
      %k1 = pump.kernel "loss" node(1) after(%k0, %b.prefetch) [write %b[0, 4194304] declared must(write)] cost(100.0)
      %b.discard = pump.discard "discard b" %b after(%b.prefetch, %k1)
      %a.prefetch = pump.prefetch "prefetch a" %a after(%k1, %b.discard)
      %k2 = pump.kernel "backward" node(2) after(%k1, %a.prefetch) [read %a[0, 4194304] declared] cost(100.0)
    }
    ```
  }];
  let options = !listconcat(machineOptions, [Option<"discard", "discard", "bool", "true",
                            "whether every access is known, so that what no node touches any more is dead">],
                            adviceOptions);
}

def InsertAdvise : GraphPass<"insert-advise"> {
  let summary = "Say what the driver is told of a step's managed memory";
  let description = [{
    For steps that are lowered by `lower-managed`, which inserts the same: advice that the step has already is replaced.
    Buffers that nodes only read and that leave are advised to be read mostly, with the copy in host memory as the one to
    keep; hosted ranges, theirs too, to stay in host memory and to be mapped before they are touched. Whether every access is known it
    cannot see: after `lower-managed{discard=false}`, which leaves it out, pass `read-mostly=false`. Advice is given once, before the first replay, so it comes first and has no edges.

    Before:
    ```mlir
    pump.graph @step stage(lowered_managed) budget(2097152) {
      %v = pump.buffer "v" private live_in live_out size(2097152) frames(0)
      %v.prefetch = pump.prefetch "prefetch v" %v
      %k0 = pump.kernel "reads" node(0) after(%v.prefetch) [read %v[0, 2097152] declared]
      %v.evict = pump.evict "evict v" %v after(%v.prefetch, %k0)
    }
    ```
    After `insert-advise`:
    ```mlir
    pump.graph @step stage(lowered_managed) budget(2097152) {
      %v = pump.buffer "v" private live_in live_out size(2097152) frames(0)
      pump.advise "advise v" %v read_mostly
      pump.advise "advise v" %v prefer_host
      %v.prefetch = pump.prefetch "prefetch v" %v
      %k0 = pump.kernel "reads" node(0) after(%v.prefetch) [read %v[0, 2097152] declared]
      %v.evict = pump.evict "evict v" %v after(%v.prefetch, %k0)
    }
    ```
  }];
  let options = adviceOptions;
}

def CheckResidency : GraphPass<"check-residency"> {
  let summary = "Prove that a plan is right in every legal order, or point at what is wrong";
  let description = [{
    Works on planned, lowered and lifted-again steps, and changes nothing. docs/plan-correctness.md is what it checks.
    A step without a plan is an error too: nothing says where its bytes are.
  }];
}

def CheckManaged : GraphPass<"check-managed"> {
  let summary = "Prove that no operation of a step lowered for managed memory can do harm, or point at what is wrong";
  let description = [{
    Whatever the agent does late or leaves undone: nothing is discarded that anybody still reads, nor while it is written.
    Changes nothing.
  }];
}

def PrintSummary : ReportPass<"print-summary"> {
  let summary = "Print the figures of each step: peak, traffic, predicted and bound times, stalls";
  let description = [{ Of a step without a plan, what it takes with every byte on the device. Changes nothing. }];
  let options = machineOptions;
}

def SimulateStep : ReportPass<"simulate-step"> {
  let summary = "Predict each step, and simulate what unified memory would make of it without a plan";
  let description = [{
    A table: in memory; demand paging at the driver's density threshold and at the aggressive one; each kernel's
    operands prefetched at its launch; the plan, if the step has one; the bounds. Then the stalls of each by cause,
    longest first. docs/simulation.md describes the model, docs/report.md the keys of the JSON. Changes nothing.
  }];
  let options = [Option<"budget", "budget", "::pumpgraph::ir::Bytes", "::pumpgraph::ir::Bytes()",
                        "device memory; 0: the plan's, or as much as the step needs">,
                 Option<"memory", "memory", "std::string", "\"h200\"", "unified memory of: h200, v100, g10, g10-32">,
                 Option<"density", "density", "unsigned", "0",
                        "percent of a subtree that bring the rest of it; 100: never; 0: as the memory has it">,
                 Option<"touch", "touch", "::pumpgraph::ir::Bytes",
                        "::pumpgraph::ir::Bytes{::pumpgraph::UnifiedMemory().touchBytes}",
                        "between two touches of a kernel's sweep over an operand, each a fault">,
                 Option<"disk", "disk", "double", "0",
                        "GB/s each way of the disk that takes what the host has no room for; 0: as the memory has it">,
                 Option<"replays", "replays", "unsigned", "::pumpgraph::UnifiedMemory().replays",
                        "the step runs this often in a row, the last time counts">,
                 Option<"json", "json", "bool", "false", "print all figures as JSON in place of the table">]
                # machineOptions;
}

def ExportPlan : ReportPass<"export-plan"> {
  let summary = "Write the plan as JSON, for anybody to check or simulate";
  let description = [{ The file must hold one step. Changes nothing. }];
  let options = [Option<"file", "file", "std::string", "\"-\"", "where to; -: standard output">] # machineOptions;
}

def ExportTimeline : ReportPass<"export-timeline"> {
  let summary = "Write the predicted timeline as Chrome trace events (opens in Perfetto)";
  let description = [{ The file must hold one step. Changes nothing. }];
  let options = [Option<"file", "file", "std::string", "\"-\"", "where to; -: standard output">] # machineOptions;
}

#endif
