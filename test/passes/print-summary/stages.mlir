// Figures of a step that is lowered for managed memory are not those of copies: what works on copies refuses it, and
// says which stages it knows.
// RUN: pump-graph-opt --plan-residency=budget=4MiB --lower-managed %s -o %t.managed.mlir
// RUN: not pump-graph-opt --print-summary %t.managed.mlir -o /dev/null 2>&1 | FileCheck %s --check-prefix=SUMMARY
// RUN: not pump-graph-opt --simulate-step %t.managed.mlir -o /dev/null 2>&1 | FileCheck %s --check-prefix=SUMMARY
// RUN: not pump-graph-opt --export-plan %t.managed.mlir -o /dev/null 2>&1 | FileCheck %s --check-prefix=SUMMARY
// RUN: not pump-graph-opt --export-timeline %t.managed.mlir -o /dev/null 2>&1 | FileCheck %s --check-prefix=SUMMARY
// RUN: not pump-graph-opt --plan-residency %t.managed.mlir -o /dev/null 2>&1 | FileCheck %s --check-prefix=CAPTURED
// RUN: not pump-graph-opt --budget=4MiB %t.managed.mlir 2>&1 | FileCheck %s --check-prefix=CAPTURED
// RUN: not pump-graph-opt --sweep=3 --report=html %t.managed.mlir 2>&1 | FileCheck %s --check-prefix=CAPTURED
// RUN: not pump-graph-opt --lower-virtual %t.managed.mlir -o /dev/null 2>&1 | FileCheck %s --check-prefix=PLANNED
// RUN: not pump-graph-opt --lower-managed %t.managed.mlir -o /dev/null 2>&1 | FileCheck %s --check-prefix=PLANNED
// RUN: not pump-graph-opt --check-residency %t.managed.mlir -o /dev/null 2>&1 | FileCheck %s --check-prefix=CHECKED
// RUN: pump-graph-opt --check-managed --insert-advise --annotate-accesses --estimate-costs %t.managed.mlir -o /dev/null

// SUMMARY: error: the step is lowered for managed memory; it has to be captured, planned or lowered for virtual memory
// SUMMARY-NOT: in-memory
// CAPTURED: error: the step is lowered for managed memory; it has to be captured
// CAPTURED-NOT: in-memory
// PLANNED: error: the step is lowered for managed memory; it has to be planned
// CHECKED: error: the step is lowered for managed memory; it has to be planned or lowered for virtual memory

pump.graph @step {
  %a = pump.buffer "a" private size(4194304)
  %b = pump.buffer "b" private size(4194304)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  %k1 = pump.kernel "loss" node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %k2 = pump.kernel "backward" node(2) after(%k1) [read %a[0, 4194304] declared] cost(100.0)
}
