pump.graph @step budget(8388608) {
  %read = pump.buffer "read" private live_in live_out size(2097152) frames(0)
  %written = pump.buffer "written" private live_in live_out size(2097152) frames(0)
  %stays = pump.buffer "stays" private live_in live_out size(2097152) frames(1)
  %hosted = pump.buffer "hosted" private live_in live_out size(4194304) frames(2, none) hosted([2097152, 2097152])
  %half = pump.buffer "half" private live_in live_out size(4194304) frames(none, 0) hosted([0, 2097152])
  %k0 = pump.kernel "first" node(0) [read %read[0, 2097152] declared, read %stays[0, 2097152] declared,
                                     read %hosted[0, 4194304] declared] cost(10.0)
  %e0 = pump.evict "evict read" %read after(%k0)
  %p1 = pump.prefetch "prefetch written" %written after(%k0, %e0)
  %k1 = pump.kernel "second" node(1) after(%k0, %p1) [readwrite %written[0, 2097152] declared] cost(10.0)
  %e1 = pump.evict "evict written" %written after(%p1, %k1)
  %p2 = pump.prefetch "prefetch half" %half[2097152, 2097152] after(%k1, %e1)
  %k2 = pump.kernel "third" node(2) after(%k1, %p2) [read %half[0, 4194304] declared] cost(10.0)
  %e2 = pump.evict "evict half" %half[2097152, 2097152] after(%p2, %k2)
}
