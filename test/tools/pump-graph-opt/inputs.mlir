// RUN: rm -rf %t && mkdir -p %t
// RUN: %python %S/../../data/training-step.py 4 > %t/step.mlir
// RUN: pump-graph-opt %t/step.mlir --budget=60%% -o %t/expected.mlir

// Gzipped, from standard input, as bytecode: the same step, the same plan.
// RUN: gzip -k %t/step.mlir
// RUN: pump-graph-opt %t/step.mlir.gz --budget=60%% -o %t/gzipped.mlir
// RUN: diff %t/expected.mlir %t/gzipped.mlir
// RUN: pump-graph-opt --budget=60%% -o %t/stdin.mlir < %t/step.mlir.gz
// RUN: diff %t/expected.mlir %t/stdin.mlir
// RUN: pump-graph-opt %t/step.mlir --emit-bytecode -o %t/step.mlirbc
// RUN: pump-graph-opt %t/step.mlirbc --budget=60%% -o %t/bytecode.mlir
// RUN: diff %t/expected.mlir %t/bytecode.mlir

// The lowered step as bytecode reads back as the same text.
// RUN: pump-graph-opt %t/step.mlir --budget=60%% --emit-bytecode -o %t/lowered.mlirbc
// RUN: pump-graph-opt %t/lowered.mlirbc -o %t/lowered.mlir
// RUN: diff %t/expected.mlir %t/lowered.mlir

// Ordinary pass pipelines read gzipped files too.
// RUN: pump-graph-opt %t/step.mlir --pass-pipeline='builtin.module(pump.graph(estimate-costs))' -o %t/plain.mlir
// RUN: pump-graph-opt %t/step.mlir.gz --pass-pipeline='builtin.module(pump.graph(estimate-costs))' -o %t/unpacked.mlir
// RUN: diff %t/plain.mlir %t/unpacked.mlir

// A truncated gzip file is an error in both, and leaves no output.
// RUN: head -c 300 %t/step.mlir.gz > %t/truncated.mlir.gz
// RUN: not pump-graph-opt %t/truncated.mlir.gz --budget=60%% -o %t/none.mlir 2>&1 | FileCheck %s
// RUN: not pump-graph-opt %t/truncated.mlir.gz -o %t/none.mlir 2>&1 | FileCheck %s
// CHECK: error: "{{.*}}truncated.mlir.gz" is a damaged or truncated gzip file: {{[0-9]+}} bytes unpacked before the damage
// RUN: not ls %t/none.mlir

// Unknown node times are estimated.
// RUN: %python %S/../../data/training-step.py 4 --unknown-costs | pump-graph-opt --report=json | FileCheck %s --check-prefix=COSTS
// COSTS-NOT: "in_memory_s": 0.0,
