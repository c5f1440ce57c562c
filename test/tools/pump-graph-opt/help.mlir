// RUN: pump-graph-opt --help | FileCheck %s

// The options that most people want come first; this pins their names and what is said of them.
// CHECK:      OVERVIEW: plans training steps under a memory budget
// CHECK:      OPTIONS:
// CHECK-EMPTY:
// CHECK-NEXT: Budget shorthand:
// CHECK-NEXT: Any of these plans the one step of the input with the default pipeline, checks the plan and lowers it; -o writes the lowered step.
// CHECK-EMPTY:
// CHECK-NEXT:  --both=<GB/s> - both directions at once, summed (default: 84% of up + down)
// CHECK-NEXT:  --budget=<size> - device memory for the step: 8GiB, 12GB, or 50% of its own peak (default: 100%)
// CHECK-NEXT:  --compare{{\[=<memory>\]}} - also simulate the step without a plan, as unified memory of: h200 (default), v100, g10, g10-32
// CHECK-NEXT:  --down=<GB/s> - bandwidth of the link from device to host alone (default: 55)
// CHECK-NEXT:  --host-memory=<size> - pinned host memory the plan may use (default: no limit)
// CHECK-NEXT:  --import-trace=<file> - plan this kernel and tensor trace (JSON, gzipped or not) instead of a step; it may name the link
// CHECK-NEXT:  --page-size=<size> - pages that an imported trace is cut into (default: 2MiB)
// CHECK-NEXT:  --plan-effort=<how much> - low takes a fraction of the time, for a plan that is as fast or some percent slower; default
// CHECK-NEXT:  --plan-trace=<file> - write what the planner's search tried, and what it kept, as CSV
// CHECK-NEXT:  --rematerialize=<when> - whether pure nodes may run again, where that is faster than moving what they make: automatic (default) or never
// CHECK-NEXT:  --report=<kind{{\[:file\]}}> - text, json, html, svg (curve of --sweep), plan (JSON), timeline (Chrome trace) or memory-viz (for PyTorch's memory viewer); to standard output if no file is named; may be repeated
// CHECK-NEXT:  --sweep{{\[=<points>\]}} - also plan this many other budgets, for the curve in the reports (default: 24)
// CHECK-NEXT:  --up=<GB/s> - bandwidth of the link from host to device alone (default: 55)
// CHECK-EMPTY:
// CHECK-NEXT: Color Options:
