// RUN: pump-graph-opt %s --budget=4MiB --compare | FileCheck %s --check-prefix=TEXT
// RUN: pump-graph-opt %s --budget=4MiB | FileCheck %s --check-prefix=WITHOUT
// RUN: pump-graph-opt %s --budget=4MiB --compare --up=1 --down=1 --report=json | FileCheck %s --check-prefix=JSON
// RUN: pump-graph-opt %s --budget=4MiB --compare=g10 | FileCheck %s --check-prefix=G10
// RUN: not pump-graph-opt %s --budget=4MiB --compare=h100 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// The plan, what the driver would do without it, and the bounds, under one budget.
// TEXT: at 4.00 MiB
// TEXT: in memory            {{ *}}300 us
// TEXT: demand paging (51 %) {{.*}} 8.00 MiB  8.00 MiB
// TEXT: demand paging (5 %)
// TEXT: prefetch at launch
// TEXT: plan                 {{.*}} 4.00 MiB  4.00 MiB
// TEXT: bound
// TEXT: plan bound
// TEXT: as on "h200"

// WITHOUT-NOT: demand paging

// No faster than the link given: 8 MiB each way take 8.4 ms at 1 GB/s.
// JSON:      "comparison": {
// JSON:      "policy": "demand paging (51 %)"
// JSON:      "fetch_s": 0.008388
// JSON-NEXT: "populate_s": 0.0
// JSON-NEXT: "write_back_s": 0.008388

// G10: as on "g10"

// UNKNOWN: error: --compare: no unified memory "h100" is known; there are h200, v100, g10 and g10-32
pump.graph @step {
  %a = pump.buffer "a" private size(4194304)
  %b = pump.buffer "b" private size(4194304)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  %k1 = pump.kernel "loss" node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %k2 = pump.kernel "backward" node(2) after(%k1) [read %a[0, 4194304] declared] cost(100.0)
}
