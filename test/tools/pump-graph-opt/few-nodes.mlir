// Where two of 49 kernels take 99 % of the time, the trace is damaged: every report says so, of the step as imported and
// of its plan.
// RUN: %python %S/Inputs/damaged_trace.py > %t.json
// RUN: pump-graph-opt --import-trace=%t.json --budget=50%% | FileCheck %s --check-prefix=TEXT
// RUN: pump-graph-opt --import-trace=%t.json --budget=50%% --report=json | FileCheck %s --check-prefix=JSON
// RUN: pump-graph-opt --import-trace=%t.json --budget=50%% --report=html | FileCheck %s --check-prefix=PAGE
// RUN: pump-graph-opt --import-trace=%t.json --budget=50%% -o %t.lowered.mlir
// RUN: pump-graph-opt --print-summary %t.lowered.mlir -o /dev/null | FileCheck %s --check-prefix=TEXT
// TEXT: damaged: 49 nodes
// TEXT: WARNING: 2 of 49 measured nodes take 99 % of their time: the trace is damaged, and its figures are not the step's
// JSON: "few_nodes": {
// JSON-NEXT: "nodes": 2,
// JSON-NEXT: "measured_nodes": 49,
// JSON-NEXT: "share": 0.99
// JSON: "warning": "2 of 49 measured nodes take 99 % of their time
// PAGE: 2 of 49 measured nodes take 99 % of their time

// None of the recorded steps is like that.
// RUN: pump-graph-opt %S/../../data/gpt2.mlir.gz --report=json | FileCheck %s --check-prefix=GOOD
// RUN: pump-graph-opt %S/../../data/resnet50.mlir.gz --report=json | FileCheck %s --check-prefix=GOOD
// RUN: %python %S/../../data/vgg-step.py > %t.vgg.mlir
// RUN: pump-graph-opt %t.vgg.mlir --report=json | FileCheck %s --check-prefix=GOOD
// RUN: pump-graph-opt --import-trace=%S/../../data/g10/BERT-256.json.gz --report=json | FileCheck %s --check-prefix=GOOD
// RUN: pump-graph-opt --import-trace=%S/../../data/g10/BERT-512.json.gz --report=json | FileCheck %s --check-prefix=GOOD
// RUN: pump-graph-opt --import-trace=%S/../../data/g10/Inceptionv3-512.json.gz --report=json | FileCheck %s --check-prefix=GOOD
// RUN: pump-graph-opt --import-trace=%S/../../data/g10/ResNet152-1280.json.gz --report=json | FileCheck %s --check-prefix=GOOD
// RUN: pump-graph-opt --import-trace=%S/../../data/g10/VIT-512.json.gz --report=json | FileCheck %s --check-prefix=GOOD
// GOOD: "few_nodes": null
