// The steps recorded from PyTorch: planned and checked at half their peak; at the whole of it nothing is added.
// RUN: pump-graph-opt %S/../../data/gpt2.mlir.gz --budget=50%% --report=json | FileCheck %s
// RUN: pump-graph-opt %S/../../data/resnet50.mlir.gz --budget=50%% --report=json | FileCheck %s
// CHECK: "budget_bytes": {{[0-9]+}},
// CHECK: "limited_by": "link
// CHECK: "checked": true

// RUN: pump-graph-opt %S/../../data/gpt2.mlir.gz --report=json | FileCheck %s --check-prefix=FITS
// RUN: pump-graph-opt %S/../../data/resnet50.mlir.gz --report=json | FileCheck %s --check-prefix=FITS
// FITS: "limited_by": "nothing: everything fits"
// FITS: "checked": true
// FITS: "added_nodes": 0,

// Nothing moves in vain: at most a tenth more than the residencies of the plan require.
// RUN: pump-graph-opt %S/../../data/gpt2.mlir.gz --budget=75%% --report=json | FileCheck %s --check-prefix=VAIN
// RUN: pump-graph-opt %S/../../data/gpt2.mlir.gz --budget=50%% --report=json | FileCheck %s --check-prefix=VAIN
// RUN: pump-graph-opt %S/../../data/gpt2.mlir.gz --budget=30%% --report=json | FileCheck %s --check-prefix=VAIN
// RUN: pump-graph-opt %S/../../data/resnet50.mlir.gz --budget=75%% --report=json | FileCheck %s --check-prefix=VAIN
// RUN: pump-graph-opt %S/../../data/resnet50.mlir.gz --budget=50%% --report=json | FileCheck %s --check-prefix=VAIN
// RUN: pump-graph-opt %S/../../data/resnet50.mlir.gz --budget=30%% --report=json | FileCheck %s --check-prefix=VAIN
// VAIN: "required_up_bytes": {{[1-9][0-9]*}},
// VAIN: "required_down_bytes": {{[1-9][0-9]*}},
// VAIN: "moved_over_required": 1.0{{[0-9]*}},

// Recorded with the operators' kernels declared pure: at half its memory the step takes a fifth more than in memory.
// RUN: pump-graph-opt %S/../../data/gpt2-355m.mlir.gz --budget=50%% --plan-effort=low | FileCheck %s --check-prefix=AGAIN
// AGAIN: 6.69 of 13.4 GiB; 1.{{1[0-9]|2[0-3]}} x in-memory
// AGAIN: repeated{{ +[0-9]+}} nodes
// AGAIN-NEXT: or else{{.*}} 3.{{[0-9]+}} x in-memory, by a quick plan that only moves
// AGAIN: made again
// AGAIN: checked: correct in every legal order of execution

// PyTorch's fused AdamW walks over the state once; its SGD with momentum, unless fused, three times.
// RUN: pump-graph-opt %S/../../data/gpt2.mlir.gz --budget=30%% --report=json | FileCheck %s --check-prefix=FUSED
// RUN: pump-graph-opt %S/../../data/resnet50.mlir.gz --report=text | FileCheck %s --check-prefix=UNFUSED
// RUN: pump-graph-opt %S/../../data/resnet50.mlir.gz --budget=60%% -o %t.mlir
// RUN: pump-graph-opt %t.mlir --pass-pipeline='builtin.module(print-summary)' | FileCheck %s --check-prefix=UNFUSED
// FUSED-NOT: repeated_sweeps
// UNFUSED: sweeps 3 walks over {{[0-9]+}} MiB of state by 8 kernels (nodes 734-741); a fused optimizer would walk once

// The picture of docs/guide/pump-graph-opt.md is such a sweep.
// RUN: pump-graph-opt %S/../../data/gpt2.mlir.gz --budget=50%% --sweep=6 --report=svg:%t.svg
// RUN: FileCheck %s --check-prefix=CURVE --input-file=%t.svg
// CURVE:         gpt2: step time against device memory
// CURVE-COUNT-6: class="point"
