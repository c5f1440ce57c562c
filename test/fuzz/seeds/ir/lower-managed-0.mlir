pump.graph @planned budget(4194304) {
  %a = pump.buffer "a" private size(4194304) frames(0 to 1)
  %b = pump.buffer "b" private size(4194304) frames(0 to 1)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  %e = pump.evict %a after(%k0)
  %k1 = pump.kernel "loss" node(1) after(%k0, %e) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %p = pump.prefetch %a after(%k1)
  %k2 = pump.kernel "backward" node(2) after(%k1, %p) [read %a[0, 4194304] declared] cost(100.0)
}

pump.graph @fits budget(4194304) {
  %a = pump.buffer "a" private size(2097152) frames(0)
  %b = pump.buffer "b" private size(2097152) frames(1)
  %k0 = pump.kernel "both" node(0) [readwrite %a[0, 2097152] declared, readwrite %b[0, 2097152] declared]
}

pump.graph @streamed budget(2097152) {
  %v = pump.buffer "v" private live_in live_out size(2097152) frames(0)
  %w = pump.buffer "w" private live_in live_out size(2097152) frames(0)
  %p0 = pump.prefetch %v
  %k0 = pump.kernel "first" node(0) after(%p0) [read %v[0, 2097152] declared] cost(100.0)
  %d = pump.discard %v after(%k0)
  %p1 = pump.prefetch %w after(%d)
  %k1 = pump.kernel "second" node(1) after(%k0, %p1) [read %w[0, 2097152] declared] cost(100.0)
}

pump.graph @hint budget(4194304) {
  %a = pump.buffer "a" private live_in live_out size(2097152) frames(0)
  %b = pump.buffer "b" private size(2097152) frames(0)
  %c = pump.buffer "c" private size(2097152) frames(1)
  %k0 = pump.kernel "temporary" node(0) [write %b[0, 2097152] declared must(write)] cost(10.0)
  %p = pump.prefetch %a after(%k0)
  %k1 = pump.kernel "long" node(1) after(%k0) [readwrite %c[0, 2097152] declared] cost(50000.0)
  %k2 = pump.kernel "user" node(2) after(%k1, %p) [readwrite %a[0, 2097152] declared] cost(10.0)
}


pump.graph @hosted budget(2097152) {
  %a = pump.buffer "a" private live_in live_out size(4194304) frames(0, none) hosted([2097152, 2097152])
  %k0 = pump.kernel "wide" node(0) [readwrite %a[0, 4194304] declared]
}
