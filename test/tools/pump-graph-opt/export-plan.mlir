// An outsider recomputes from the exported plan alone what the report says (test/outsider), and finds what is damaged.
// RUN: pump-graph-opt %s --budget=4MiB --report=plan:%t.json --report=json:%t.report.json
// RUN: %python %S/../../outsider/recompute.py %t.json %t.report.json | FileCheck %s
// CHECK: "peak_bytes": 4194304,
// CHECK: "up_bytes": 2097152,
// CHECK: "down_bytes": 2097152

// Here one frame is gone from the budget, and a captured edge from the step.
// RUN: sed 's/"budget_bytes":4194304/"budget_bytes":2097152/' %t.json > %t.small.json
// RUN: not %python %S/../../outsider/recompute.py %t.small.json 2>&1 | FileCheck %s --check-prefix=SMALL
// SMALL: wrong: 2 frames exceed the budget of 2097152 bytes
// RUN: sed 's/"from":0,"to":1,"kind":"full","origin":"captured"/"from":0,"to":1,"kind":"full","origin":"added"/' %t.json > %t.loose.json
// RUN: not %python %S/../../outsider/recompute.py %t.loose.json %t.report.json 2>&1 | FileCheck %s --check-prefix=LOOSE
// LOOSE: wrong: in_memory_s is

pump.graph @four {
  %a = pump.buffer "a" private size(2097152)
  %b = pump.buffer "b" private size(2097152)
  %c = pump.buffer "c" private size(2097152)
  %k0 = pump.kernel "write_a" node(0) [write %a[0, 2097152] declared must(write)] cost(100.0)
  %k1 = pump.kernel "write_b" node(1) after(%k0) [write %b[0, 2097152] declared must(write)] cost(100.0)
  %k2 = pump.kernel "write_c" node(2) after(%k1) [read %b[0, 2097152] declared, write %c[0, 2097152] declared must(write)] cost(10.0)
  %k3 = pump.kernel "read_a" node(3) after(%k2) [read %a[0, 2097152] declared] cost(100.0)
}
