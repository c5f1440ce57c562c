// RUN: pump-graph-opt --canonicalize --cse %s | FileCheck %s

// Generic clean-ups neither drop nor merge anything: every op has an effect, whether or not its result is used.
// CHECK-LABEL: pump.graph @step
pump.graph @step stage(planned) {
  // CHECK-NEXT: pump.buffer size(8)
  %unused = pump.buffer size(8)
  // CHECK-NEXT: pump.buffer size(8)
  %twin = pump.buffer size(8)
  // CHECK-NEXT: %[[A:.*]] = pump.buffer "a" private size(2097152)
  %a = pump.buffer "a" private size(2097152)
  // CHECK-NEXT: pump.kernel "same"
  pump.kernel "same"
  // CHECK-NEXT: pump.kernel "same"
  pump.kernel "same"
  // CHECK-NEXT: pump.empty
  pump.empty
  // CHECK-NEXT: pump.evict %[[A]]
  pump.evict %a
  // CHECK-NEXT: pump.evict %[[A]]
  pump.evict %a
}
