// RUN: pump-graph-opt --plan-residency=budget=4MiB --lower-virtual --export-plan=file=%t.json -o /dev/null %s
// RUN: %python -c "import json; plan = json.load(open('%t.json')); [print(t['direction'], t['buffer'], t['offset'], t['size'], t['frames']) for t in plan['transfers']]" | FileCheck %s
// RUN: pump-graph-opt --plan-residency=budget=4MiB --lower-virtual --export-plan -o /dev/null %s | diff - %t.json
// RUN: not pump-graph-opt --plan-residency=budget=4MiB --export-plan=file=%t.nowhere/plan.json %s -o /dev/null 2>&1 | FileCheck %s --check-prefix=NOWHERE

// RUN: cat %s %S/../print-summary/Inputs/second.mlir > %t.two.mlir
// RUN: not pump-graph-opt --export-plan -o /dev/null %t.two.mlir 2>&1 | FileCheck %s --check-prefix=TWO
// TWO: error: one step can be exported; the file holds 2

// CHECK: down 0 0 4194304 {{\[0, 1\]}}
// CHECK-NEXT: up 0 0 4194304 {{\[0, 1\]}}
// NOWHERE: export-plan.mlir:[[@LINE+1]]:1: error: cannot open output file {{.*}}nowhere/plan.json
pump.graph @step {
  %a = pump.buffer "a" private size(4194304)
  %b = pump.buffer "b" private size(4194304)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  %k1 = pump.kernel "loss" node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %k2 = pump.kernel "backward" node(2) after(%k1) [read %a[0, 4194304] declared] cost(100.0)
}
