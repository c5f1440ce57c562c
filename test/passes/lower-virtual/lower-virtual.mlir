// RUN: pump-graph-opt --lower-virtual %s | FileCheck %s
// RUN: pump-graph-opt --lower-virtual --check-residency %s -o /dev/null

// An evict and its prefetch become copies to and from the same place in the pinned pool; dependencies stay.
// CHECK-LABEL: pump.graph @copies stage(lowered_virtual) budget(4194304) host_bytes(4194304)
pump.graph @copies stage(planned) budget(4194304) {
  %a = pump.buffer "a" private size(4194304) frames(0 to 1)
  %b = pump.buffer "b" private size(4194304) frames(0 to 1)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  // CHECK: %a.to_host = pump.to_host %a host([[PLACE:[0-9]+]]) after(%k0)
  %e = pump.evict %a after(%k0)
  // CHECK-NEXT: %k1 = pump.kernel "loss" node(1) after(%k0, %a.to_host)
  %k1 = pump.kernel "loss" node(1) after(%k0, %e) [write %b[0, 4194304] declared must(write)] cost(100.0)
  // CHECK-NEXT: %a.to_device = pump.to_device %a host([[PLACE]]) after(%k1)
  %p = pump.prefetch %a after(%k1)
  // CHECK-NEXT: %k2 = pump.kernel "backward" node(2) after(%k1, %a.to_device)
  %k2 = pump.kernel "backward" node(2) after(%k1, %p) [read %a[0, 4194304] declared] cost(100.0)
}

// A discard is gone; the order it stood for is not.
// CHECK-LABEL: pump.graph @discard
pump.graph @discard stage(planned) budget(2097152) {
  %a = pump.buffer "a" private size(2097152) frames(0)
  %b = pump.buffer "b" private size(2097152) frames(0)
  %k0 = pump.kernel "temporary" node(0) [write %a[0, 2097152] declared must(write)]
  // CHECK-NOT: pump.discard
  %d = pump.discard %a after(%k0)
  // CHECK: pump.kernel "next" node(1) after(%k0)
  %k1 = pump.kernel "next" node(1) after(%d) [write %b[0, 2097152] declared must(write)]
}
