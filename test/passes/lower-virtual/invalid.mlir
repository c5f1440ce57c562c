// RUN: pump-graph-opt --lower-virtual --split-input-file --verify-diagnostics %s

// expected-error @+1 {{the step is captured; it has to be planned}}
pump.graph @captured {
  %a = pump.buffer "a" private size(4194304)
}

// -----
// expected-error @+1 {{the step is lowered for virtual memory; it has to be planned}}
pump.graph @lowered stage(lowered_virtual) budget(4194304) host_bytes(4194304) {
  %a = pump.buffer "a" private size(4194304) frames(0 to 1)
  pump.to_host %a host(0)
}
