// RUN: pump-graph-opt --check-managed --split-input-file --verify-diagnostics %s

// Prefetches and evictions may be late or missing: no order is asked of them.
pump.graph @transfers stage(lowered_managed) budget(2097152) {
  %a = pump.buffer "a" private live_in live_out size(2097152)
  %p = pump.prefetch %a
  %k0 = pump.kernel "k" node(0) [readwrite %a[0, 2097152] declared]
  %e = pump.evict %a
}

// -----
// A value that is read again must not be discarded.
pump.graph @alive stage(lowered_managed) budget(2097152) {
  // expected-note @+1 {{the buffer is defined here}}
  %a = pump.buffer "a" private size(2097152)
  %k0 = pump.kernel "writes" node(0) [write %a[0, 2097152] declared must(write)]
  %d = pump.discard %a after(%k0)
  // expected-error @+1 {{whose value is lost}}
  %k1 = pump.kernel "reads" node(1) after(%k0, %d) [read %a[0, 2097152] declared]
}

// -----
// A path over an eviction that the agent may drop is no reason for a discard to be over.
pump.graph @late stage(lowered_managed) budget(4194304) {
  // expected-note @+1 {{the buffer is defined here}}
  %a = pump.buffer "a" private size(2097152)
  %b = pump.buffer "b" private live_in live_out size(2097152)
  %k0 = pump.kernel "reads" node(0) [readwrite %a[0, 2097152] declared]
  %d = pump.discard %a after(%k0)
  %e = pump.evict %b after(%d)
  // expected-error @+1 {{race on page 0}}
  %k1 = pump.kernel "writes" node(1) after(%k0, %e) [write %a[0, 2097152] declared must(write)]
}

// -----
// expected-error @+1 {{the step is planned; it has to be lowered for managed memory}}
pump.graph @planned stage(planned) budget(2097152) {
  %a = pump.buffer "a" private size(2097152) frames(0)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 2097152] declared must(write)]
}
