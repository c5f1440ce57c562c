// RUN: pump-graph-opt --insert-advise --verify-diagnostics %s

// expected-error @+1 {{the step is lowered for virtual memory; it has to be lowered for managed memory}}
pump.graph @lowered stage(lowered_virtual) budget(4194304) host_bytes(4194304) {
  %a = pump.buffer "a" private size(4194304) frames(0 to 1)
  pump.to_host %a host(0)
}

// -----
// A plan has yet to become operations.
// expected-error @+1 {{the step is planned; it has to be lowered for managed memory}}
pump.graph @planned stage(planned) budget(4194304) {
  %a = pump.buffer "a" private size(4194304) frames(0 to 1)
}
