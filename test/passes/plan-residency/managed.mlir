// RUN: pump-graph-opt --plan-residency="budget=8MiB down=12" %s | FileCheck %s
// RUN: pump-graph-opt --plan-residency="budget=8MiB down=12 backend=managed" %s | FileCheck %s --check-prefix=MANAGED
// RUN: pump-graph-opt --plan-residency="budget=8MiB down=12 backend=managed-unknown" %s | FileCheck %s --check-prefix=UNKNOWN
// RUN: pump-graph-opt --plan-residency="budget=8MiB backend=managed" --check-residency %s -o /dev/null
// RUN: pump-graph-opt --plan-residency="budget=8MiB backend=managed-unknown" --check-residency %s -o /dev/null

// There is too little room twice. The weight's host copy is good the second time, so it leaves for nothing, where a page
// has a place in the pool. A managed page has one copy, which has to cross the link: so y goes, which is less.
// CHECK-LABEL: pump.graph @clean
// CHECK:         pump.evict %weight
// CHECK-NOT:     %y.evict
// CHECK:         pump.discard %weight
// MANAGED-LABEL: pump.graph @clean
// MANAGED-NOT:   pump.discard
// MANAGED:       pump.kernel "makes y"
// MANAGED-NOT:   pump.evict %weight
// MANAGED:       pump.evict %y after
// MANAGED-NOT:   pump.evict %weight
// MANAGED:       pump.kernel "needs room"

// Where nobody knows what is dead, all that leaves goes down, and comes up again.
// UNKNOWN-LABEL: pump.graph @clean
// UNKNOWN:       pump.prefetch %t
// UNKNOWN:       pump.kernel "fills all"
// UNKNOWN:       pump.evict %t
pump.graph @clean {
  %weight = pump.buffer "weight" private live_in live_out size(4194304)
  %y = pump.buffer "y" private size(3145728)
  %t = pump.buffer "t" private size(8388608)
  %u = pump.buffer "u" private size(4194304)
  %k0 = pump.kernel "reads weight" node(0) [read %weight[0, 4194304] declared must(read)] cost(10.0)
  %k1 = pump.kernel "fills all" node(1) after(%k0) [write %t[0, 8388608] declared must(write)] cost(10.0)
  %k2 = pump.kernel "makes y" node(2) after(%k1) [read %weight[0, 4194304] declared must(read), write %y[0, 3145728] declared must(write)] cost(10.0)
  %k3 = pump.kernel "needs room" node(3) after(%k2) [write %u[0, 4194304] declared must(write)] cost(10.0)
  %k4 = pump.kernel "reads weight again" node(4) after(%k3) [read %weight[0, 4194304] declared must(read)] cost(10.0)
  %k5 = pump.kernel "reads y" node(5) after(%k4) [read %y[0, 3145728] declared must(read)] cost(10.0)
  %k6 = pump.kernel "updates weight" node(6) after(%k5) [readwrite %weight[0, 4194304] declared must(readwrite)] cost(10.0)
}
