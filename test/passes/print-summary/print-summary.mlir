// RUN: pump-graph-opt --print-summary -o /dev/null --split-input-file %s | FileCheck %s --check-prefix=CAPTURED
// RUN: pump-graph-opt --plan-residency=budget=4MiB --print-summary -o /dev/null %s | FileCheck %s --check-prefix=PLANNED
// RUN: pump-graph-opt --plan-residency=budget=4MiB --lower-virtual --print-summary -o /dev/null %s | FileCheck %s --check-prefix=PLANNED
// RUN: pump-graph-opt --print-summary %s 2>/dev/null | FileCheck %s --check-prefix=UNCHANGED

// Several steps are reported in the order of the file.
// RUN: cat %s %S/Inputs/second.mlir > %t.two.mlir
// RUN: pump-graph-opt --print-summary -o /dev/null %t.two.mlir | FileCheck %s --check-prefix=TWO
// TWO: step: 3 nodes
// TWO: second: 1 node

// Of a captured step: what it takes with every byte on the device. Of a planned or lowered one: what its plan takes.
// CAPTURED: step: 3 nodes, 2 buffers
// CAPTURED: peak before   8.00 MiB
// CAPTURED: predicted     {{ *}}300 us
// PLANNED: step: 3 nodes, 2 buffers
// PLANNED: peak before   8.00 MiB
// PLANNED: budget        4.00 MiB
// PLANNED: peak after    4.00 MiB
// PLANNED: up {{ *}}4.00 MiB
// PLANNED: down {{ *}}4.00 MiB

// UNCHANGED: pump.graph @step {
// UNCHANGED-NOT: frames
pump.graph @step {
  %a = pump.buffer "a" private size(4194304)
  %b = pump.buffer "b" private size(4194304)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  %k1 = pump.kernel "loss" node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %k2 = pump.kernel "backward" node(2) after(%k1) [read %a[0, 4194304] declared] cost(100.0)
}
