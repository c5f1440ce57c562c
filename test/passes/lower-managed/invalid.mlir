// RUN: pump-graph-opt --lower-managed --split-input-file --verify-diagnostics %s

// expected-error @+1 {{the step has no plan to lower}}
pump.graph @captured {
  %a = pump.buffer "a" private size(4194304)
}

// -----
// expected-error @+1 {{the step is lowered already}}
pump.graph @lowered budget(4194304) host_bytes(4194304) {
  %a = pump.buffer "a" private size(4194304) frames(0 to 1)
  pump.to_host %a host(0)
}
