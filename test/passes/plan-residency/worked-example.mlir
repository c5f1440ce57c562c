// RUN: pump-graph-opt --plan-residency="budget=10MiB" %s | FileCheck %s
// RUN: pump-graph-opt --budget=10MiB --report=text %s -o /dev/null | FileCheck %s --check-prefix=REPORT
// RUN: pump-graph-opt --budget=12MiB --report=text %s -o /dev/null | FileCheck %s --check-prefix=MORE

// The example of docs/design/planner.md, which has to change with the plan.
// CHECK-LABEL: pump.graph @worked stage(planned)
// CHECK:         %w = pump.buffer "w" {{.*}} frames(1) resident([0, 2097152])
// CHECK:         %a = pump.buffer "a" {{.*}} frames(3 to 4)
// CHECK:         %b = pump.buffer "b" {{.*}} frames(1 to 2)
// CHECK:         %c = pump.buffer "c" {{.*}} frames(3 to 4)
// CHECK:         %g = pump.buffer "g" {{.*}} frames(0)
// CHECK:         pump.kernel "f1"
// CHECK-NEXT:    %w.evict = pump.evict %w
// CHECK-NEXT:    pump.kernel "f2" {{.*}}after(%k0, %w.evict)
// CHECK-NEXT:    %a.evict = pump.evict %a after(%k0, %w.evict)
// CHECK-NEXT:    pump.kernel "f3" {{.*}}after(%k1, %a.evict)
// CHECK-NEXT:    pump.kernel "b3"
// CHECK-NEXT:    pump.kernel "b2"
// CHECK-NEXT:    %a.prefetch = pump.prefetch %a after(%k3)
// CHECK-NEXT:    pump.kernel "b1" {{.*}}after(%k4, %a.prefetch)
// CHECK-NEXT:    %w.prefetch = pump.prefetch %w after(%k4, %a.prefetch)
// CHECK-NEXT:    pump.kernel "update" {{.*}}after(%k5, %w.prefetch)
// CHECK-NOT:     pump.{{evict|prefetch}}

// REPORT: predicted       700 us   1.00 x in-memory
// MORE:   predicted       700 us   1.00 x in-memory

pump.graph @worked {
  %w = pump.buffer "w" private live_in live_out size(2097152)
  %a = pump.buffer "a" private size(4194304)
  %b = pump.buffer "b" private size(4194304)
  %c = pump.buffer "c" private size(4194304)
  %g = pump.buffer "g" private size(2097152)
  %f1 = pump.kernel "f1" node(0) [read %w[0, 2097152] declared must(read), write %a[0, 4194304] declared must(write)] cost(100.0)
  %f2 = pump.kernel "f2" node(1) after(%f1) [read %a[0, 4194304] declared must(read), write %b[0, 4194304] declared must(write)] cost(100.0)
  %f3 = pump.kernel "f3" node(2) after(%f2) [read %b[0, 4194304] declared must(read), write %c[0, 4194304] declared must(write)] cost(100.0)
  %b3 = pump.kernel "b3" node(3) after(%f3) [read %c[0, 4194304] declared must(read), write %g[0, 2097152] declared must(write)] cost(100.0)
  %b2 = pump.kernel "b2" node(4) after(%b3) [read %b[0, 4194304] declared must(read), readwrite %g[0, 2097152] declared must(readwrite)] cost(100.0)
  %b1 = pump.kernel "b1" node(5) after(%b2) [read %a[0, 4194304] declared must(read), readwrite %g[0, 2097152] declared must(readwrite)] cost(100.0)
  %up = pump.kernel "update" node(6) after(%b1) [read %g[0, 2097152] declared must(read), readwrite %w[0, 2097152] declared must(readwrite)] cost(100.0)
}
