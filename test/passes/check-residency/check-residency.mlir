// RUN: pump-graph-opt --check-residency --split-input-file --verify-diagnostics %s

// A right plan is accepted without a word.
pump.graph @right stage(planned) budget(4194304) {
  %a = pump.buffer "a" private size(4194304) frames(0 to 1)
  %b = pump.buffer "b" private size(4194304) frames(0 to 1)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)]
  %e = pump.evict %a after(%k0)
  %k1 = pump.kernel "loss" node(1) after(%e) [write %b[0, 4194304] declared must(write)]
  %p = pump.prefetch %a after(%k1)
  %k2 = pump.kernel "backward" node(2) after(%p) [read %a[0, 4194304] declared]
}

// -----
// The same with an edge missing: the message is at the transfer that races, and shows the buffer.
pump.graph @race stage(planned) budget(4194304) {
  // expected-note @+1 {{the buffer is defined here}}
  %a = pump.buffer "a" private size(4194304) frames(0 to 1)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)]
  // expected-error @+1 {{race}}
  %e = pump.evict %a
}

// -----
// A mirrored page has to be in both places when the step ends.
pump.graph @mirrored stage(planned) budget(2097152) {
  // expected-error @+1 {{must be on the device and in host memory, but its value is on the device only}}
  %a = pump.buffer "a" private live_in live_out size(2097152) frames(0) resident([0, 2097152]) mirrored([0, 2097152])
  %k0 = pump.kernel "update" node(0) [readwrite %a[0, 2097152] declared]
}

// -----
// What is only read stays the same in both.
pump.graph @mirrored_and_read stage(planned) budget(2097152) {
  %a = pump.buffer "a" private live_in live_out size(2097152) frames(0) resident([0, 2097152]) mirrored([0, 2097152])
  %k0 = pump.kernel "look" node(0) [read %a[0, 2097152] declared]
}

// -----
// That it was only observed to be read is not enough.
pump.graph @mirrored_and_observed stage(planned) budget(2097152) {
  // expected-error @+1 {{must be on the device and in host memory, but its value is on the device only}}
  %a = pump.buffer "a" private live_in live_out size(2097152) frames(0) resident([0, 2097152]) mirrored([0, 2097152])
  %k0 = pump.kernel "look" node(0) [read %a[0, 2097152] observed]
}

// -----
// Nor is an overwriting that was only observed, where the value before is gone.
pump.graph @observed_overwrite stage(planned) budget(2097152) {
  // expected-note @+1 {{the buffer is defined here}}
  %a = pump.buffer "a" private size(2097152) frames(0)
  %b = pump.buffer "b" private size(2097152) frames(0)
  %k0 = pump.kernel "first" node(0) [write %a[0, 2097152] declared must(write)]
  %d = pump.discard %a after(%k0)
  %k1 = pump.kernel "other" node(1) after(%d) [write %b[0, 2097152] declared must(write)]
  // expected-error @+1 {{whose value is lost}}
  %k2 = pump.kernel "second" node(2) after(%k1) [write %a[0, 2097152] observed must(write)]
}

// -----
// A step without a plan is no correct plan.
// expected-error @+1 {{the step is captured; it has to be planned or lowered for virtual memory}}
pump.graph @captured {
  %a = pump.buffer "a" private size(2097152)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 2097152] assumed]
}

// -----
// Nor is a plan without frames.
pump.graph @frameless stage(planned) {
  // expected-note @+1 {{the buffer is defined here}}
  %a = pump.buffer "a" private size(2097152)
  // expected-error @+1 {{has no frame}}
  %k0 = pump.kernel "forward" node(0) [write %a[0, 2097152] assumed]
}

// -----
// Operations of an agent are no plan: check-managed knows what they promise.
// expected-error @+1 {{the step is lowered for managed memory; it has to be planned or lowered for virtual memory}}
pump.graph @operations stage(lowered_managed) budget(2097152) {
  %a = pump.buffer "a" private size(2097152) frames(0)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 2097152] declared must(write)]
}
