// RUN: pump-graph-opt --pass-pipeline='builtin.module(pump.graph(plan-residency{budget=4MiB}))' %s | FileCheck %s
// RUN: pump-graph-opt --pass-pipeline='builtin.module(pump.graph(plan-residency{budget=4MiB},check-residency))' %s -o /dev/null

// Two buffers that do not fit together take turns in the same frames.
// CHECK-LABEL: pump.graph @turns stage(planned) budget(4194304)
pump.graph @turns {
  // CHECK-NEXT: %a = pump.buffer "a" private size(4194304) frames([[FRAMES:.*]])
  %a = pump.buffer "a" private size(4194304)
  // CHECK-NEXT: %b = pump.buffer "b" private size(4194304) frames([[FRAMES]])
  %b = pump.buffer "b" private size(4194304)
  // CHECK-NEXT: %k0 = pump.kernel "forward"
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  // CHECK-NEXT: %a.evict = pump.evict %a after(%k0)
  // CHECK-NEXT: %k1 = pump.kernel "loss" node(1) after(%k0, %a.evict)
  %k1 = pump.kernel "loss" node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
  // CHECK-NEXT: %a.prefetch = pump.prefetch %a after(%k1)
  // CHECK-NEXT: %k2 = pump.kernel "backward" node(2) after(%k1, %a.prefetch)
  %k2 = pump.kernel "backward" node(2) after(%k1) [read %a[0, 4194304] declared] cost(100.0)
}

// What fits gets frames and no new node.
// CHECK-LABEL: pump.graph @fits
pump.graph @fits {
  // CHECK: frames(
  %a = pump.buffer "a" private size(2097152)
  %b = pump.buffer "b" private size(2097152)
  // CHECK-NOT: pump.{{evict|prefetch|discard}}
  // CHECK: pump.kernel "k0"
  %k0 = pump.kernel "k0" node(0) [write %a[0, 2097152] assumed]
  // CHECK-NOT: pump.{{evict|prefetch|discard}}
  // CHECK: pump.kernel "k1"
  %k1 = pump.kernel "k1" node(1) after(%k0) [read %a[0, 2097152] assumed, write %b[0, 2097152] assumed]
  // CHECK-NOT: pump.{{evict|prefetch|discard}}
}

// Locations and foreign attributes of captured nodes stay with them.
// CHECK-LABEL: pump.graph @attributes
pump.graph @attributes {
  %a = pump.buffer "a" private size(2097152)
  // CHECK: pump.kernel "k" {{.*}} {module.line = 17 : i64}
  %k = pump.kernel "k" node(0) [write %a[0, 2097152] assumed] {module.line = 17}
}

// What is only read need not go back to the host: it is still there.
// CHECK-LABEL: pump.graph @declared_reads
pump.graph @declared_reads {
  %w = pump.buffer "w" private live_in live_out size(4194304)
  %b = pump.buffer "b" private size(4194304)
  // CHECK-NOT: pump.evict
  %k0 = pump.kernel "forward" node(0) [read %w[0, 4194304] declared] cost(100.0)
  %k1 = pump.kernel "loss" node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %k2 = pump.kernel "backward" node(2) after(%k1) [read %w[0, 4194304] declared] cost(100.0)
}

// That it was only observed to be read is no reason to leave that out.
// CHECK-LABEL: pump.graph @observed_reads
pump.graph @observed_reads {
  %w = pump.buffer "w" private live_in live_out size(4194304)
  %b = pump.buffer "b" private size(4194304)
  // CHECK: pump.kernel "forward" node(0) {{.*}}[read %w[0, 4194304] observed]
  // CHECK: pump.evict %w
  // CHECK: pump.kernel "loss"
  %k0 = pump.kernel "forward" node(0) [read %w[0, 4194304] observed] cost(100.0)
  %k1 = pump.kernel "loss" node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %k2 = pump.kernel "backward" node(2) after(%k1) [read %w[0, 4194304] observed] cost(100.0)
}

// A value that is overwritten before it is read again is dead.
// CHECK-LABEL: pump.graph @declared_overwrite
pump.graph @declared_overwrite {
  %a = pump.buffer "a" private size(4194304)
  %b = pump.buffer "b" private size(4194304)
  // CHECK-NOT: pump.evict %a
  %k0 = pump.kernel "first" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  %k1 = pump.kernel "other" node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %k2 = pump.kernel "second" node(2) after(%k1) [write %a[0, 4194304] declared must(write)] cost(100.0)
}

// If that was only observed, the value has to be there.
// CHECK-LABEL: pump.graph @observed_overwrite
pump.graph @observed_overwrite {
  %a = pump.buffer "a" private size(4194304)
  %b = pump.buffer "b" private size(4194304)
  // CHECK: pump.evict %a
  // CHECK: pump.kernel "other"
  // CHECK: pump.prefetch %a
  // CHECK: pump.kernel "second"
  %k0 = pump.kernel "first" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  %k1 = pump.kernel "other" node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %k2 = pump.kernel "second" node(2) after(%k1) [write %a[0, 4194304] observed must(write)] cost(100.0)
}
