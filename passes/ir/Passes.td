// SPDX-License-Identifier: Apache-2.0
/// \file
/// The passes over the `pump` dialect. docs/reference/passes.md is generated from here.

#ifndef PUMPGRAPH_PASSES_IR_PASSES_TD
#define PUMPGRAPH_PASSES_IR_PASSES_TD

include "mlir/Pass/PassBase.td"

class GraphPass<string argument> : Pass<argument, "::pumpgraph::ir::GraphOp">;

// Reports are about all steps of a file, in its order: passes over single graphs run side by side, in any order.
class ReportPass<string argument> : Pass<argument, "::mlir::ModuleOp">;

// The machine that a step is planned for or drawn on. The defaults are those of passes/analysis/Machine.h.
defvar machineOptions = [
  Option<"up", "up", "double", "::pumpgraph::Machine().upBytesPerSecond / 1e9", "GB/s to the device">,
  Option<"down", "down", "double", "::pumpgraph::Machine().downBytesPerSecond / 1e9", "GB/s to the host">,
  Option<"both", "both", "double", "::pumpgraph::Machine().bothBytesPerSecond / 1e9",
         "GB/s both ways, summed">,
  Option<"device", "device", "double", "::pumpgraph::Machine().deviceBytesPerSecond / 1e9",
         "GB/s of device memory">,
  Option<"copyOverhead", "copy-overhead", "double", "::pumpgraph::Machine().copyOverheadUs",
         "microseconds of every copy">,
  Option<"hostMemory", "host-memory", "::pumpgraph::ir::Bytes", "::pumpgraph::ir::Bytes()",
         "pinned host memory; 0: no limit">
];

def AnnotateAccesses : GraphPass<"annotate-accesses"> {
  let summary = "Narrow accesses by node kinds, parameter types and tables of the Clang plugin";
  let description = [{
    Narrows accesses of evidence `assumed` or `observed`. A copy must read its source, copy and fill must overwrite
    their destination (`proved`). A parameter of type `T const *`, by the kernel's mangled name, is only read
    (`declared`).

    `tables` names a file of the Clang plugin (`-fplugin-arg-pumpgraph-json=FILE`). Accesses get the mode of their slot,
    or of all slots where the parameter is unknown, and become `proved`. Slots that escape or are unresolved change
    nothing; ranges and overwrites are not used. A table that allows more than was `declared`, and an observation that
    contradicts a table or type, give a warning.
  }];
  let options = [Option<"tables", "tables", "std::string", "", "JSON file of the Clang plugin">];
}

def EstimateCosts : GraphPass<"estimate-costs"> {
  let summary = "Give nodes of unknown cost the time that their bytes or their arithmetic need";
  let description = [{
    Known costs stay, and `from` first takes node times of a saved step, by position and name. docs/design/cost-model.md has
    the rest. More than 32 unproved accesses to the whole of one range count as 32 passes together.
  }];
  let options = [Option<"from", "from", "std::string", "", "file with the same step and its node times">]
                # machineOptions;
}

def PlanResidency : GraphPass<"plan-residency"> {
  let summary = "Choose which bytes are in which frame at which time, under a budget";
  let description = [{
    Inserts `pump.evict`, `pump.prefetch` and `pump.discard`, and names a frame for every page. A step that fits gets frames
    alone. Nodes of unknown cost count as free: run estimate-costs first.

    Before:
    ```mlir
    pump.graph @step {
      %a = pump.buffer "a" private size(4194304)
      %b = pump.buffer "b" private size(4194304)
      %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)]
      %k1 = pump.kernel "loss" node(1) after(%k0) [write %b[0, 4194304] declared must(write)]
      %k2 = pump.kernel "backward" node(2) after(%k1) [read %a[0, 4194304] declared]
    }
    ```
    After `plan-residency{budget=4MiB}`:
    ```mlir
    pump.graph @step stage(planned) budget(4194304) {
      %a = pump.buffer "a" private size(4194304) frames(0 to 1)
      %b = pump.buffer "b" private size(4194304) frames(0 to 1)
      %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)]
      %a.evict = pump.evict %a after(%k0)
      %k1 = pump.kernel "loss" node(1) after(%k0, %a.evict) [write %b[0, 4194304] declared must(write)]
      %a.prefetch = pump.prefetch %a after(%k1)
      %k2 = pump.kernel "backward" node(2) after(%k1, %a.prefetch) [read %a[0, 4194304] declared]
    }
    ```
  }];
  let options = [Option<"budget", "budget", "::pumpgraph::ir::Bytes", "::pumpgraph::ir::Bytes()",
                        "device memory; 0: as much as the step needs">,
                 Option<"backend", "backend", "::pumpgraph::Backend", "::pumpgraph::Backend::Virtual",
                        "virtual, managed, or managed-unknown: with unknown accesses", [{::llvm::cl::values(
                          clEnumValN(::pumpgraph::Backend::Virtual, "virtual", "copies and edges"),
                          clEnumValN(::pumpgraph::Backend::Managed, "managed", "an agent on managed memory"),
                          clEnumValN(::pumpgraph::Backend::ManagedUnknown, "managed-unknown",
                                     "the same with unknown accesses"))}]>]
                # machineOptions;
}

def LowerVirtual : GraphPass<"lower-virtual"> {
  let summary = "Turn a plan into copies and edges";
  let description = [{
    Evictions become `pump.to_host` and prefetches `pump.to_device`, each with its place in the pinned pool. Discards become
    edges. Neighbouring transfers are joined, and small ones at equal distances become rows of one copy. No captured node is
    dropped.

    In a step with copies the copies of a direction form a chain, programmatic edges become full ones, and implied edges are
    left out, since copies are slower on many streams.
  }];
}

// Advice on managed memory. The defaults are those of passes/lower/InsertAdvise.h.
defvar adviceOptions = [
  Option<"readMostly", "read-mostly", "bool", "::pumpgraph::AdviceOptions().readMostly",
         "read-only buffers that leave keep their host copy">,
  Option<"preferHost", "prefer-host", "bool", "::pumpgraph::AdviceOptions().preferHost",
         "hosted ranges stay in host memory">,
  Option<"accessedBy", "accessed-by", "bool", "::pumpgraph::AdviceOptions().accessedBy",
         "hosted ranges are mapped before they are touched">
];

def LowerManaged : GraphPass<"lower-managed"> {
  let summary = "Turn a plan into operations of an agent on managed memory";
  let description = [{
    Pages leave and return as the plan's frames require (docs/design/managed.md). A captured node waits for operations with
    an edge to it; a prefetch without one is a hint. The advice of `insert-advise` comes first. Dead pages are discarded
    unless some access is unknown (`discard=false`).
  }];
  let options = !listconcat(machineOptions, [Option<"discard", "discard", "bool", "true",
                            "every access is known">],
                            adviceOptions);
}

def InsertAdvise : GraphPass<"insert-advise"> {
  let summary = "Advise the driver on a step's managed memory";
  let description = [{
    Replaces the advice of a step lowered for managed memory; `lower-managed` inserts the same. The pass cannot see whether
    every access is known: after `lower-managed{discard=false}` pass `read-mostly=false`.
  }];
  let options = adviceOptions;
}

def CheckResidency : GraphPass<"check-residency"> {
  let summary = "Prove a plan correct in every legal order, or name the mistake";
  let description = [{
    Works on planned, lowered and re-lifted steps, by docs/design/plan-correctness.md. Changes nothing.
  }];
}

def CheckManaged : GraphPass<"check-managed"> {
  let summary = "Prove that no operation on managed memory can do harm, or name the mistake";
  let description = [{
    Nothing is discarded while it is written, or while a node still reads it, even if the agent is late or leaves
    operations out. Changes nothing.
  }];
}

def PrintSummary : ReportPass<"print-summary"> {
  let summary = "Print the figures of each step: peak, traffic, predicted and bound times, stalls";
  let description = [{ Of a step without a plan the figures in memory. Changes nothing. }];
  let options = machineOptions;
}

def SimulateStep : ReportPass<"simulate-step"> {
  let summary = "Predict each step, and simulate it on unified memory without a plan";
  let description = [{
    A table of in memory, demand paging at two density thresholds, prefetch at launch, the plan, the bounds; then all
    stalls by cause. docs/reference/report.md has the JSON. Changes nothing.
  }];
  let options = [Option<"budget", "budget", "::pumpgraph::ir::Bytes", "::pumpgraph::ir::Bytes()",
                        "device memory; 0: the plan's or the step's">,
                 Option<"memory", "memory", "std::string", "\"h200\"", "h200, v100, g10 or g10-32">,
                 Option<"density", "density", "unsigned", "0",
                        "percent of a subtree that bring the rest; 0: the memory's">,
                 Option<"touch", "touch", "::pumpgraph::ir::Bytes",
                        "::pumpgraph::ir::Bytes{::pumpgraph::UnifiedMemory().touchBytes}",
                        "bytes between two touches of a sweep">,
                 Option<"disk", "disk", "double", "0",
                        "GB/s each way of the disk; 0: the memory's">,
                 Option<"replays", "replays", "unsigned", "::pumpgraph::UnifiedMemory().replays",
                        "runs in a row; the last counts">,
                 Option<"json", "json", "bool", "false", "print JSON">]
                # machineOptions;
}

def ExportPlan : ReportPass<"export-plan"> {
  let summary = "Write the plan as JSON";
  let description = [{ The file must hold one step. Changes nothing. }];
  let options = [Option<"file", "file", "std::string", "\"-\"", "where to; -: standard output">] # machineOptions;
}

def ExportTimeline : ReportPass<"export-timeline"> {
  let summary = "Write the predicted timeline as Chrome trace events (opens in Perfetto)";
  let description = [{ The file must hold one step. Changes nothing. }];
  let options = [Option<"file", "file", "std::string", "\"-\"", "where to; -: standard output">] # machineOptions;
}

#endif
