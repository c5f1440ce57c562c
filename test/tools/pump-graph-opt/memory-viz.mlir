// The snapshot for PyTorch's memory viewer has on the device what the timeline of the same plan has, at all times.
// RUN: rm -rf %t && mkdir -p %t
// RUN: %python %S/../../data/training-step.py 8 > %t/step.mlir
// RUN: pump-graph-opt %t/step.mlir --budget=50%% --report=memory-viz:%t/m.pickle --report=timeline:%t/t.json --report=json:%t/r.json
// RUN: %python %S/memory_viz.py %t/m.pickle %t/t.json %t/r.json | FileCheck %s

// Frames say which pages these are, how they come, and what becomes of them.
// CHECK:     {{[0-9]+}} events of {{[0-9]+}} buffers, {{[1-9][0-9]*}} blocks at the end
// CHECK-DAG: alloc {{.*}}:0: all of its {{[0-9]+}} bytes; step boundary:0: on the device since before the step; step boundary:0: stays on the device between replays;
// CHECK-DAG: alloc {{.*}}: copied back from the host at {{[0-9.]+ ms}}, for this node; {{.*}}
// CHECK-DAG: free_completed {{.*}}: last used by this node, in host memory from {{[0-9.]+ ms}} on;
// CHECK-DAG: free_completed {{.*}}: last used by this node, not needed any more from {{[0-9.]+ ms}} on;

// Where everything fits nothing but the buffers of the step itself comes and goes.
// RUN: pump-graph-opt %t/step.mlir --report=memory-viz:%t/m.pickle --report=timeline:%t/t.json --report=json:%t/r.json
// RUN: %python %S/memory_viz.py %t/m.pickle %t/t.json %t/r.json | FileCheck %s --check-prefix=FITS
// FITS-NOT: host

// A recorded step of a convolutional network, most of whose buffers leave.
// RUN: pump-graph-opt %S/../../data/resnet50.mlir.gz --budget=20%% --plan-effort=low --report=memory-viz:%t/m.pickle --report=timeline:%t/t.json --report=json:%t/r.json
// RUN: %python %S/memory_viz.py %t/m.pickle %t/t.json %t/r.json | FileCheck %s --check-prefix=RECORDED
// RECORDED: events of {{[0-9]+}} buffers

// Values that are made again say so.
// RUN: pump-graph-opt %S/rematerialize.mlir --budget=6MiB --up=1 --down=1 --report=memory-viz:%t/m.pickle --report=timeline:%t/t.json --report=json:%t/r.json
// RUN: %python %S/memory_viz.py %t/m.pickle %t/t.json %t/r.json | FileCheck %s --check-prefix=AGAIN
// AGAIN-DAG: alloc {{.*}}: made again by this node at
// AGAIN-DAG: free_completed {{.*}}: last used by this node, dropped, to be made again from
