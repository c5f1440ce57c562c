// RUN: pump-graph-opt --plan-residency=budget=4MiB --export-timeline="file=%t.json copy-overhead=0 down=4.194304" -o /dev/null %s
// RUN: %python -c "import json; [print(e['name'], round(e['ts']), round(e['dur'])) for e in json.load(open('%t.json'))['traceEvents'] if e['ph'] == 'X']" | FileCheck %s

// Kernels and copies with their predicted times: 4 MiB go down in 1000 us here.
// CHECK-DAG: forward 0 100
// CHECK-DAG: a 100 1000
// CHECK-DAG: loss 1100 100
pump.graph @step {
  %a = pump.buffer "a" private size(4194304)
  %b = pump.buffer "b" private size(4194304)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  %k1 = pump.kernel "loss" node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %k2 = pump.kernel "backward" node(2) after(%k1) [read %a[0, 4194304] declared] cost(100.0)
}
