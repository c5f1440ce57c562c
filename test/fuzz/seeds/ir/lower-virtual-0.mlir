pump.graph @copies budget(4194304) {
  %a = pump.buffer "a" private size(4194304) frames(0 to 1)
  %b = pump.buffer "b" private size(4194304) frames(0 to 1)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  %e = pump.evict %a after(%k0)
  %k1 = pump.kernel "loss" node(1) after(%k0, %e) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %p = pump.prefetch %a after(%k1)
  %k2 = pump.kernel "backward" node(2) after(%k1, %p) [read %a[0, 4194304] declared] cost(100.0)
}

pump.graph @discard budget(2097152) {
  %a = pump.buffer "a" private size(2097152) frames(0)
  %b = pump.buffer "b" private size(2097152) frames(0)
  %k0 = pump.kernel "temporary" node(0) [write %a[0, 2097152] declared must(write)]
  %d = pump.discard %a after(%k0)
  %k1 = pump.kernel "next" node(1) after(%d) [write %b[0, 2097152] declared must(write)]
}
