// RUN: rm -rf %t && mkdir -p %t
// RUN: %python %S/../../data/training-step.py 8 > %t/step.mlir
// RUN: pump-graph-opt %t/step.mlir --budget=50%% --sweep=5 --report=text:%t/r.txt --report=json:%t/r.json --report=html:%t/r.html --report=svg:%t/r.svg --report=plan:%t/plan.json --report=timeline:%t/t.json -o %t/planned.mlir | count 0

// Every report asked for is written, each to its file, and nothing to standard output.
// RUN: FileCheck %s --check-prefix=TEXT --input-file=%t/r.txt
// TEXT: train_8_layers: 50 nodes
// TEXT: checked: correct in every legal order of execution
// TEXT: budget  predicted  in-memory      bound  plan bound         up       down
// TEXT-COUNT-5: iB

// RUN: %python -m json.tool %t/r.json | FileCheck %s --check-prefix=JSON
// JSON: "name": "train_8_layers"
// JSON: "checked": true
// JSON: "sweep": [

// RUN: %python -m json.tool %t/plan.json | FileCheck %s --check-prefix=PLAN
// PLAN: "format": "pumpgraph-plan"
// PLAN: "transfers": [
// PLAN: "direction": "down"

// RUN: %python -m json.tool %t/t.json | FileCheck %s --check-prefix=TIMELINE
// TIMELINE: "name": "link up"
// TIMELINE: "name": "device memory"

// RUN: FileCheck %s --check-prefix=HTML --input-file=%t/r.html
// HTML:     <!doctype html>
// HTML:     <h1>train_8_layers</h1>
// HTML-NOT: {{(src|href)=}}
// HTML:     class="curve wide"
// HTML:     </html>

// RUN: %python -c "import sys, xml.dom.minidom as d; d.parse(sys.argv[1])" %t/r.svg

// What was written is a lowered step that the checker accepts.
// RUN: pump-graph-opt %t/planned.mlir --pass-pipeline='builtin.module(pump.graph(check-residency))' -o /dev/null

// The same input gives the same plan, byte for byte.
// RUN: pump-graph-opt %t/step.mlir --budget=50%% -o %t/again.mlir
// RUN: diff %t/planned.mlir %t/again.mlir

// One report goes to standard output if it names no file.
// RUN: pump-graph-opt %t/step.mlir --budget=50%% --report=json | %python -m json.tool | FileCheck %s --check-prefix=STDOUT
// STDOUT:     "name": "train_8_layers"
// STDOUT-NOT: "sweep"
