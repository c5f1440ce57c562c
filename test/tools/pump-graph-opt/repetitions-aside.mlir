// A batch norm updates its running mean besides: it runs again without that access, and the mean is updated once.
// RUN: pump-graph-opt --budget=28MiB -o - %s | FileCheck %s
// CHECK: pump.kernel "norm" pure node(0) [read %x[0, 8388608] declared, write %y[0, 8388608] declared must(write), readwrite %running_mean[0, 256] assumed parameter(2) aside]
// CHECK: pump.rematerialize "norm" of(0) pure after({{[^)]*}}) [read %x[0, 8388608] declared, write %y[0, 8388608] declared must(write)] cost
pump.graph @step {
  %x = pump.buffer "x" private live_in live_out size(8388608)
  %mean = pump.buffer "running_mean" live_in live_out size(256)
  %y = pump.buffer "y" private size(8388608)
  %wide = pump.buffer "wide" private size(16777216)
  %sum = pump.buffer "sum" live_in live_out size(256)
  %k0 = pump.kernel "norm" pure node(0) [read %x[0, 8388608] declared, write %y[0, 8388608] declared must(write), readwrite %mean[0, 256] assumed parameter(2) aside] cost(20.0)
  %k1 = pump.kernel "use" node(1) after(%k0) [read %y[0, 8388608] declared, readwrite %sum[0, 256] declared] cost(20.0)
  %k2 = pump.kernel "spread" node(2) after(%k1) [write %wide[0, 16777216] declared must(write)] cost(20.0)
  %k3 = pump.kernel "use" node(3) after(%k2) [read %wide[0, 16777216] declared, readwrite %sum[0, 256] declared] cost(20.0)
  %k4 = pump.kernel "use" node(4) after(%k3) [read %y[0, 8388608] declared, readwrite %sum[0, 256] declared] cost(20.0)
}
