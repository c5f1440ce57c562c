// RUN: not pump-graph-opt --estimate-costs=from=%S/Inputs/measured.mlir %s 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: not pump-graph-opt --estimate-costs=from=%t.nowhere %s 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: printf 'pump.graph @step { \033[31m }' > %t.damaged
// RUN: not pump-graph-opt --estimate-costs=from=%t.damaged %s 2>&1 | FileCheck %s --check-prefix=DAMAGED

// Times of another step are an error, not a file without effect.
// OTHER: invalid.mlir:[[@LINE+5]]:1: error: no node of '{{.*}}measured.mlir' has a known time and the position and name of one here
// NONE: invalid.mlir:[[@LINE+4]]:1: error: cannot take node times from '{{.*}}nowhere': cannot open input file
// DAMAGED: node times of {{.*}}.damaged:1:20: error:
// DAMAGED-NOT: 31m
// DAMAGED: cannot take node times from '{{.*}}damaged': it is no step
pump.graph @step {
  pump.kernel "another" node(0)
}
