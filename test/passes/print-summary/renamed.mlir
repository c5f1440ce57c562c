// RUN: pump-graph-opt --print-summary -o /dev/null %s | FileCheck %s

// A buffer that continues another is the plan's: the captured step has one, and its bound is of that.
// CHECK: step: 2 nodes, 1 buffer{{$}}
// CHECK: renamed       2.00 MiB   in other frames, or hosted, at another address from some node on (1 time)
// CHECK: checked
pump.graph @step stage(planned) budget(4194304) {
  %relu = pump.buffer "relu" private renamable size(2097152) frames(0)
  %relu_0 = pump.buffer "relu" private renamable continues(%relu) size(2097152) frames(1)
  %k0 = pump.kernel "forward" node(0) [write %relu[0, 2097152] declared must(write)]
  %evict = pump.evict %relu after(%k0)
  %prefetch = pump.prefetch %relu_0 after(%evict)
  %k1 = pump.kernel "backward" node(1) after(%k0, %prefetch) [read %relu_0[0, 2097152] declared]
}
