// RUN: not pump-graph-opt --estimate-costs=from=%S/Inputs/measured.mlir %s 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: not pump-graph-opt --estimate-costs=from=%t.nowhere %s 2>&1 | FileCheck %s --check-prefix=NONE

// Times of another step are an error, not a file without effect.
// OTHER: invalid.mlir:[[@LINE+2]]:1: error: no node of '{{.*}}measured.mlir' has a known time and the position and name of one here
// NONE: invalid.mlir:[[@LINE+1]]:1: error: cannot take node times from '{{.*}}nowhere'
pump.graph @step {
  pump.kernel "another" node(0)
}
