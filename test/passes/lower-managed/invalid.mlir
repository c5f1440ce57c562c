// RUN: pump-graph-opt --lower-managed --split-input-file --verify-diagnostics %s

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

// -----
// expected-error @+1 {{the step is lowered for managed memory; it has to be planned}}
pump.graph @operations stage(lowered_managed) budget(4194304) {
  %a = pump.buffer "a" private size(4194304) frames(0 to 1)
  %e = pump.evict %a
}

// -----
// expected-error @+1 {{the plan lets "a" go on at another address; managed memory is at one}}
pump.graph @renamed stage(planned) budget(4194304) {
  %a = pump.buffer "a" private renamable size(2097152) frames(0)
  %a_0 = pump.buffer "a" private renamable continues(%a) size(2097152) frames(1)
}
