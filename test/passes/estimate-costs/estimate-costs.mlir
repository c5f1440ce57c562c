// RUN: pump-graph-opt --estimate-costs="device=1000 up=10 down=20" %s | FileCheck %s

// Device memory moves 1 MB in 1 us here. A kernel costs what it reads and writes, and 1.6 us for being a node.
// CHECK-LABEL: pump.graph @kernels
pump.graph @kernels {
  %a = pump.buffer "a" size(4000000)
  // CHECK: pump.kernel "idle" cost(1.6)
  pump.kernel "idle"
  // CHECK: pump.kernel "read" {{.*}} cost(5.6)
  pump.kernel "read" [read %a[0, 4000000] assumed]
  // CHECK: pump.kernel "both" {{.*}} cost(9.6)
  pump.kernel "both" [readwrite %a[0, 4000000] assumed]
}

// A kernel moves its bytes while it computes.
// CHECK-LABEL: pump.graph @arithmetic
pump.graph @arithmetic {
  %a = pump.buffer "a" size(4000000)
  // CHECK: pump.kernel "product" {{.*}} cost(31.6) arithmetic(30.0)
  pump.kernel "product" [read %a[0, 4000000] assumed] arithmetic(30.0)
  // CHECK: pump.kernel "sum" {{.*}} cost(5.6) arithmetic(2.0)
  pump.kernel "sum" [read %a[0, 4000000] assumed] arithmetic(2.0)
}

// A copy with one side in a buffer has the other in host memory: the link is what it costs.
// CHECK-LABEL: pump.graph @copies
pump.graph @copies {
  %a = pump.buffer "a" size(4000000)
  // CHECK: pump.memcpy "up" {{.*}} cost(101.6)
  pump.memcpy "up" [write %a[0, 1000000] proved]
  // CHECK: pump.memcpy "down" {{.*}} cost(51.6)
  pump.memcpy "down" [read %a[0, 1000000] proved]
  // CHECK: pump.memcpy "inside" {{.*}} cost(3.6)
  pump.memcpy "inside" [read %a[0, 1000000] proved, write %a[2000000, 1000000] proved]
}

// Known times stay, joins are free, and what a plan adds is timed elsewhere.
// CHECK-LABEL: pump.graph @not_estimated
pump.graph @not_estimated stage(planned) {
  %a = pump.buffer "a" private size(4000000)
  // CHECK: pump.kernel "measured" {{.*}} cost(40.0)
  pump.kernel "measured" [readwrite %a[0, 4000000] assumed] cost(40.0)
  // CHECK: pump.empty cost(0.0)
  pump.empty
  // CHECK: pump.evict %a{{$}}
  pump.evict %a
}
