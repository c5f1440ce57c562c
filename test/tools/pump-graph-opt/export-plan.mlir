// RUN: pump-graph-opt %s --budget=4MiB --report=plan:%t.json
// RUN: %python %S/Inputs/replay-plan.py %t.json | FileCheck %s --check-prefix=REPLAYED
// REPLAYED: 4 nodes and 2 transfers replayed in 2 frames

// The exported plan alone tells that a transfer is missing: here the eviction, then the prefetch.
// RUN: not %python %S/Inputs/replay-plan.py %t.json drop=2 2>&1 | FileCheck %s --check-prefix=NO-EVICT
// NO-EVICT: node 5 does not find what it needs
// RUN: not %python %S/Inputs/replay-plan.py %t.json drop=4 2>&1 | FileCheck %s --check-prefix=NO-PREFETCH
// NO-PREFETCH: node 5 does not find what it needs

// A real step, with small buffers, state that lives across steps and parts of buffers moved.
// RUN: pump-graph-opt %S/../../data/gpt2.mlir.gz --budget=50%% --report=plan:%t.gpt2.json
// RUN: %python %S/Inputs/replay-plan.py %t.gpt2.json
pump.graph @four {
  %a = pump.buffer "a" private size(2097152)
  %b = pump.buffer "b" private size(2097152)
  %c = pump.buffer "c" private size(2097152)
  %k0 = pump.kernel "write_a" node(0) [write %a[0, 2097152] declared must(write)] cost(100.0)
  %k1 = pump.kernel "write_b" node(1) after(%k0) [write %b[0, 2097152] declared must(write)] cost(100.0)
  %k2 = pump.kernel "write_c" node(2) after(%k1) [read %b[0, 2097152] declared, write %c[0, 2097152] declared must(write)] cost(10.0)
  %k3 = pump.kernel "read_a" node(3) after(%k2) [read %a[0, 2097152] declared] cost(100.0)
}
