// RUN: pump-graph-opt --simulate-step='budget=4MiB replays=1' -o /dev/null %s | FileCheck %s --check-prefix=CAPTURED
// RUN: pump-graph-opt --simulate-step=budget=8MiB -o /dev/null %s | FileCheck %s --check-prefix=FITS
// RUN: pump-graph-opt --simulate-step='budget=4MiB density=100' -o /dev/null %s | FileCheck %s --check-prefix=DENSITY
// RUN: pump-graph-opt --simulate-step='budget=4MiB replays=1 touch=64KiB' -o /dev/null %s | FileCheck %s --check-prefix=SPARSE
// RUN: pump-graph-opt --pass-pipeline='builtin.module(pump.graph(plan-residency{budget=4MiB},lower-virtual),simulate-step)' -o /dev/null %s | FileCheck %s --check-prefix=PLANNED
// RUN: pump-graph-opt --simulate-step %s 2>/dev/null | FileCheck %s --check-prefix=UNCHANGED
// RUN: pump-graph-opt --simulate-step='budget=4MiB replays=1 memory=v100 json=true' -o /dev/null %s | FileCheck %s --check-prefix=JSON
// RUN: pump-graph-opt --simulate-step='budget=2MiB replays=1 memory=g10-32 json=true' -o /dev/null %s | FileCheck %s --check-prefix=FAST-LINK
// RUN: not pump-graph-opt --simulate-step=disk=-1 %s 2>&1 | FileCheck %s --check-prefix=DISK
// RUN: not pump-graph-opt --simulate-step=memory=h100 %s 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not pump-graph-opt --simulate-step=density=101 %s 2>&1 | FileCheck %s --check-prefix=DENSE
// RUN: not pump-graph-opt --simulate-step=touch=2MiB %s 2>&1 | FileCheck %s --check-prefix=TOUCH
// RUN: not pump-graph-opt --simulate-step=budget=1MiB %s 2>&1 | FileCheck %s --check-prefix=TIGHT
// RUN: not pump-graph-opt --plan-residency=budget=4MiB --simulate-step=budget=6MiB %s 2>&1 | FileCheck %s --check-prefix=OTHER

// From host memory and with nothing on the device: two blocks are populated for "a", two for "b", which push "a" out;
// the last kernel fetches it. Two batches a block.
// CAPTURED:      step: 3 nodes, 2 buffers
// CAPTURED-NEXT: at 4.00 MiB
// CAPTURED-NEXT: in memory {{ *}}300 us     1.00 x       0 B       0 B
// CAPTURED-NEXT: demand paging (51 %) {{.*}} 4.00 MiB  8.00 MiB {{ *}}12 {{ *}}4{{$}}
// CAPTURED-NEXT: demand paging (5 %) {{.*}} 4.00 MiB  8.00 MiB {{ *}}6 {{ *}}4{{$}}
// CAPTURED-NEXT: prefetch at launch {{.*}} 4.00 MiB  8.00 MiB {{ *}}0 {{ *}}4{{$}}
// CAPTURED-NEXT: bound
// CAPTURED-NEXT: plan bound
// CAPTURED:      unified memory simulated as on "h200", replay 1
// CAPTURED:      demand paging (51 %): 3 nodes stalled
// CAPTURED:      node 2 "backward": {{.*}}writing back {{.*}}fetching
// CAPTURED-NOT:  plan:

// Where everything fits, a later replay finds it on the device.
// FITS: demand paging (51 %) {{ *}}300 us     1.00 x       0 B       0 B {{ *}}0 {{ *}}0{{$}}
// FITS: prefetch at launch   {{ *}}300 us     1.00 x       0 B       0 B {{ *}}0 {{ *}}0{{$}}
// FITS-NOT: stalled

// DENSITY: demand paging (100 %)

// One touch in 64 KiB: a batch holds both blocks of a buffer.
// SPARSE: demand paging (51 %) {{.*}} 4.00 MiB  8.00 MiB {{ *}}3 {{ *}}4{{$}}

// The same figures in full; 4 MiB come back at 12.75 GB/s.
// JSON:      "step": "step",
// JSON-NEXT: "memory": "v100",
// JSON-NEXT: "budget_bytes": 4194304,
// JSON-NEXT: "rows": [
// JSON:      "policy": "demand paging (51 %)",
// JSON:      "footprint_bytes": 8388608,
// JSON:      "fetch_s": 0.00032896
// JSON-NOT:  in memory

// At 32 GB/s.
// FAST-LINK: "fetch_s": 0.000131072

// A planned step is compared at its own budget, with its plan.
// PLANNED: at 4.00 MiB
// PLANNED: demand paging (51 %)
// PLANNED: plan {{ *}}{{[0-9.]+}} {{us|ms}}
// PLANNED: plan: {{.*}} stalled
// PLANNED-NEXT: node 1 "loss": waits for "a", 4.00 MiB down
// PLANNED-NEXT: node 2 "backward": waits for "a", 4.00 MiB up

// UNCHANGED: pump.graph @step {
// UNCHANGED-NOT: frames

// UNKNOWN: error: no unified memory "h100" is known; there are h200, v100, g10 and g10-32
// DENSE: error: density has to be at most 100, replays at least 1, touch from 1 to 65536; they are 101, 2 and 4096
// TOUCH: error: density has to be at most 100, replays at least 1, touch from 1 to 65536; they are 0, 2 and 2097152
// DISK: error: disk has to be a bandwidth of at least 0 GB/s
// TIGHT: error: step "step": buffers that never move take 0 bytes; a budget of 1048576 bytes leaves no room for a block of 2097152
// OTHER: error: the step is planned for 4194304 bytes and cannot be compared at 6291456
pump.graph @step {
  %a = pump.buffer "a" private size(4194304)
  %b = pump.buffer "b" private size(4194304)
  %k0 = pump.kernel "forward" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  %k1 = pump.kernel "loss" node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %k2 = pump.kernel "backward" node(2) after(%k1) [read %a[0, 4194304] declared] cost(100.0)
}
