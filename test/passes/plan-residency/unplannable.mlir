// Steps that no plan can make fit: the message is at the node or the step that is to blame.
// RUN: pump-graph-opt --plan-residency="budget=4MiB host-memory=1MiB" --split-input-file --verify-diagnostics %s

pump.graph @one_kernel {
  %a = pump.buffer "a" private size(6291456)
  // expected-error @+1 {{node 0 "gemm" needs 6.0 MiB on the device at once; the budget is 4.0 MiB, and with 2.0 MiB of operands always in host memory the plan needs 2.0 MiB of host memory; 1.0 MiB may be used, 1.0 MiB are missing}}
  pump.kernel "gemm" node(0) [read %a[0, 6291456] assumed]
}

// -----
// expected-error @+1 {{the plan needs 4.0 MiB of host memory; 1.0 MiB may be used, 3.0 MiB are missing}}
pump.graph @host_memory {
  %a = pump.buffer "a" private size(4194304)
  %b = pump.buffer "b" private size(4194304)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)]
  %k1 = pump.kernel "loss" node(1) after(%k0) [write %b[0, 4194304] declared must(write)]
  %k2 = pump.kernel "backward" node(2) after(%k1) [read %a[0, 4194304] declared]
}

// -----
// expected-error @+1 {{the step is planned; it has to be captured}}
pump.graph @twice stage(planned) {
  %a = pump.buffer "a" private size(4194304)
  pump.evict %a
}
