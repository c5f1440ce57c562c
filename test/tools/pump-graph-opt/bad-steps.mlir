// RUN: rm -rf %t && split-file %s %t

// One node that needs more than the budget, and more host memory than there is, is named and pointed at, with the
// numbers; nothing is written.
// RUN: not pump-graph-opt %t/large-node.mlir --budget=5MiB --host-memory=1MiB -o %t/none.mlir 2>&1 | FileCheck %s --check-prefix=LARGE
// LARGE: large-node.mlir:6:{{[0-9]+}}: error: node 1 "add" needs 6.0 MiB on the device at once; the budget is 5.0 MiB, and with 2.0 MiB of operands always in host memory
// LARGE-NEXT: %k1 = pump.kernel "add"
// RUN: not ls %t/none.mlir

// So is pinned memory that does not suffice, with what is missing.
// RUN: not pump-graph-opt %t/spills.mlir --budget=4MiB --host-memory=1MiB 2>&1 | FileCheck %s --check-prefix=HOST
// RUN: pump-graph-opt %t/spills.mlir --budget=4MiB --host-memory=2MiB
// HOST: spills.mlir:1:1: error: the plan needs 2.0 MiB of host memory; 1.0 MiB may be used, 1.0 MiB are missing

// A file that ends early is an error at the place where it ends.
// RUN: not pump-graph-opt %t/truncated.mlir --budget=5MiB 2>&1 | FileCheck %s --check-prefix=TRUNCATED
// TRUNCATED: truncated.mlir:{{[0-9]+}}:{{[0-9]+}}: error:

// IR that does not verify is one too.
// RUN: not pump-graph-opt %t/outside.mlir --budget=5MiB 2>&1 | FileCheck %s --check-prefix=OUTSIDE
// OUTSIDE: outside.mlir:3:{{[0-9]+}}: error:

// A step is planned once, and a file holds one.
// RUN: pump-graph-opt %t/large-node.mlir --budget=6MiB -o %t/fits.mlir
// RUN: not pump-graph-opt %t/planned.mlir --budget=6MiB 2>&1 | FileCheck %s --check-prefix=PLANNED
// PLANNED: planned.mlir:4:{{[0-9]+}}: error: the step is planned; it has to be captured
// RUN: not pump-graph-opt %t/fits.mlir --budget=4MiB 2>&1 | FileCheck %s --check-prefix=FRAMES
// FRAMES: fits.mlir:2:3: error: the step is lowered for virtual memory; it has to be captured
// RUN: not pump-graph-opt %t/two.mlir --budget=6MiB 2>&1 | FileCheck %s --check-prefix=TWO
// TWO: two.mlir:3:1: error: the second of 2 steps; the budget shorthand takes one
// RUN: echo "" | not pump-graph-opt --budget=6MiB 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: "-" holds no step (pump.graph)

//--- large-node.mlir
pump.graph @large {
  %a = pump.buffer "a" private live_in live_out size(2097152)
  %b = pump.buffer "b" private live_in live_out size(2097152)
  %c = pump.buffer "c" private size(2097152)
  %k0 = pump.kernel "touch" node(0) [read %a[0, 2097152] declared] cost(1.0)
  %k1 = pump.kernel "add" node(1) after(%k0) [read %a[0, 2097152] declared, read %b[0, 2097152] declared, write %c[0, 2097152] declared must(write)] cost(1.0)
}

//--- spills.mlir
pump.graph @spills {
  %a = pump.buffer "a" private size(2097152)
  %b = pump.buffer "b" private size(2097152)
  %c = pump.buffer "c" private size(2097152)
  %k0 = pump.kernel "write_a" node(0) [write %a[0, 2097152] declared must(write)] cost(1.0)
  %k1 = pump.kernel "write_b" node(1) after(%k0) [write %b[0, 2097152] declared must(write)] cost(1.0)
  %k2 = pump.kernel "add" node(2) after(%k1) [read %b[0, 2097152] declared, write %c[0, 2097152] declared must(write)] cost(1.0)
  %k3 = pump.kernel "read_a" node(3) after(%k2) [read %a[0, 2097152] declared] cost(1.0)
}

//--- truncated.mlir
pump.graph @truncated {
  %a = pump.buffer "a" private size(2097152)
  %k0 = pump.kernel "touch" node(0) [write %a[0, 20

//--- outside.mlir
pump.graph @outside {
  %a = pump.buffer "a" private size(2097152)
  %k0 = pump.kernel "touch" node(0) [write %a[0, 2097153] declared] cost(1.0)
}

//--- planned.mlir
pump.graph @planned stage(planned) {
  %a = pump.buffer "a" private size(2097152)
  %k0 = pump.kernel "touch" node(0) [write %a[0, 2097152] declared] cost(1.0)
  %e0 = pump.evict %a after(%k0)
}

//--- two.mlir
pump.graph @first {
}
pump.graph @second {
}
