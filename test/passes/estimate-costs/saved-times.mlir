// RUN: pump-graph-opt --estimate-costs=from=%S/Inputs/measured.mlir --split-input-file %s | FileCheck %s

// Times of a saved step are taken where position and name agree; the rest is estimated.
// CHECK-LABEL: pump.graph @step
pump.graph @step {
  // CHECK: pump.kernel "gemm" node(0) cost(123.5)
  pump.kernel "gemm" node(0)
  // CHECK: pump.kernel "gelu" node(1) cost(1.6)
  pump.kernel "gelu" node(1)
  // CHECK: pump.kernel "not timed" node(2) cost(1.6)
  pump.kernel "not timed" node(2)
}
