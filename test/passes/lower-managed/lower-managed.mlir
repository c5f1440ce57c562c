// RUN: pump-graph-opt --lower-managed %s | FileCheck %s
// RUN: pump-graph-opt --lower-managed --check-managed %s -o /dev/null
// RUN: pump-graph-opt --lower-managed=discard=false %s | FileCheck %s --check-prefix=UNKNOWN
// RUN: pump-graph-opt --lower-managed='read-mostly=false' %s | FileCheck %s --check-prefix=ADVICE
// RUN: pump-graph-opt --lower-managed=discard=false --check-managed %s -o /dev/null

// What leaves is evicted, what nobody looks at again is discarded, and what comes back waits for its place; so does
// what has no value yet, for memory brought before it is written is faster than faults.
// CHECK-LABEL: pump.graph @planned stage(lowered_managed) budget(4194304)
pump.graph @planned stage(planned) budget(4194304) {
  %a = pump.buffer "a" private size(4194304) frames(0 to 1)
  %b = pump.buffer "b" private size(4194304) frames(0 to 1)
  // CHECK: pump.kernel "forward"
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  // CHECK-NEXT: [[EVICT:%[a-z.]+]] = pump.evict "evict a" %a after(%k0)
  %e = pump.evict %a after(%k0)
  // CHECK-NEXT: [[MEMORY:%[a-z.]+]] = pump.prefetch "prefetch b" %b after(%k0, [[EVICT]])
  // CHECK-NEXT: pump.kernel "loss" node(1) after(%k0, [[MEMORY]])
  %k1 = pump.kernel "loss" node(1) after(%k0, %e) [write %b[0, 4194304] declared must(write)] cost(100.0)
  // CHECK-NEXT: [[DISCARD:%[a-z.]+]] = pump.discard "discard b" %b after([[MEMORY]], %k1)
  // CHECK-NEXT: [[PREFETCH:%[a-z.]+]] = pump.prefetch "prefetch a" %a after(%k1, [[DISCARD]])
  %p = pump.prefetch %a after(%k1)
  // CHECK-NEXT: pump.kernel "backward" node(2) after(%k1, [[PREFETCH]])
  %k2 = pump.kernel "backward" node(2) after(%k1, %p) [read %a[0, 4194304] declared] cost(100.0)
  // It stays: in the next replay it is the first in its frames again.
  // CHECK-NEXT: }
  // UNKNOWN-LABEL: pump.graph @planned
  // UNKNOWN-NOT: pump.discard
  // UNKNOWN: pump.evict "evict b"
  // UNKNOWN-NOT: pump.discard
}

// Where everything has a frame of its own, nothing is added.
// CHECK-LABEL: pump.graph @fits
pump.graph @fits stage(planned) budget(4194304) {
  %a = pump.buffer "a" private size(2097152) frames(0)
  %b = pump.buffer "b" private size(2097152) frames(1)
  // CHECK-NOT: pump.{{evict|prefetch|discard|advise}}
  %k0 = pump.kernel "both" node(0) [readwrite %a[0, 2097152] declared, readwrite %b[0, 2097152] declared]
}

// Weights that are only read are given up clean by the plan; here they leave, for nothing once they are read mostly and
// the copy to keep is the one in host memory.
// CHECK-LABEL: pump.graph @streamed
pump.graph @streamed stage(planned) budget(2097152) {
  %v = pump.buffer "v" private live_in live_out size(2097152) frames(0)
  %w = pump.buffer "w" private live_in live_out size(2097152) frames(0)
  // CHECK-DAG: pump.advise "advise v" %v read_mostly
  // CHECK-DAG: pump.advise "advise v" %v prefer_host
  // CHECK-DAG: pump.advise "advise w" %w read_mostly
  // CHECK: [[V:%[a-z.]+]] = pump.prefetch "prefetch v" %v
  %p0 = pump.prefetch %v
  // CHECK: pump.kernel "first" node(0) after([[V]])
  %k0 = pump.kernel "first" node(0) after(%p0) [read %v[0, 2097152] declared] cost(100.0)
  // CHECK: [[VLEAVES:%[a-z.]+]] = pump.evict "evict v" %v after([[V]], %k0)
  %d = pump.discard %v after(%k0)
  // CHECK: [[W:%[a-z.]+]] = pump.prefetch "prefetch w" %w after(%k0, [[VLEAVES]])
  %p1 = pump.prefetch %w after(%d)
  // CHECK: pump.kernel "second" node(1) after(%k0, [[W]])
  %k1 = pump.kernel "second" node(1) after(%k0, %p1) [read %w[0, 2097152] declared] cost(100.0)
  // UNKNOWN-LABEL: pump.graph @streamed
  // UNKNOWN-NOT: read_mostly
}

// A transfer that is over long before anybody needs it is not waited for, but memory for what was discarded is.
// CHECK-LABEL: pump.graph @hint
pump.graph @hint stage(planned) budget(4194304) {
  %a = pump.buffer "a" private live_in live_out size(2097152) frames(0)
  %b = pump.buffer "b" private size(2097152) frames(0)
  %c = pump.buffer "c" private size(2097152) frames(1)
  // CHECK: [[MEMORY:%[a-z.]+]] = pump.prefetch "prefetch b"
  // CHECK: pump.kernel "temporary" node(0) after([[MEMORY]])
  %k0 = pump.kernel "temporary" node(0) [write %b[0, 2097152] declared must(write)] cost(10.0)
  // CHECK: pump.prefetch "prefetch a"
  %p = pump.prefetch %a after(%k0)
  %k1 = pump.kernel "long" node(1) after(%k0) [readwrite %c[0, 2097152] declared] cost(50000.0)
  // CHECK: pump.kernel "user" node(2) after(%k1) [
  %k2 = pump.kernel "user" node(2) after(%k1, %p) [readwrite %a[0, 2097152] declared] cost(10.0)
}

// ADVICE-NOT: read_mostly
// ADVICE: pump.advise "advise a" %a[2097152, 2097152] accessed_by

// What stays in host memory is reached there, and the driver is told so.
// CHECK-LABEL: pump.graph @hosted
pump.graph @hosted stage(planned) budget(2097152) {
  %a = pump.buffer "a" private live_in live_out size(4194304) frames(0, none) hosted([2097152, 2097152])
  // CHECK: pump.advise "advise a" %a[2097152, 2097152] prefer_host
  // CHECK-NEXT: pump.advise "advise a" %a[2097152, 2097152] accessed_by
  %k0 = pump.kernel "wide" node(0) [readwrite %a[0, 4194304] declared]
}
