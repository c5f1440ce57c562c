// Under a tight budget nodes run again, which takes less than to move what they make there and back.
// RUN: pump-graph-opt %s --budget=6MiB --up=1 --down=1 | FileCheck %s --check-prefix=TEXT
// RUN: pump-graph-opt %s --budget=6MiB --up=1 --down=1 --rematerialize=automatic | FileCheck %s --check-prefix=TEXT
// RUN: pump-graph-opt %s --budget=6MiB --up=1 --down=1 --report=json | FileCheck %s --check-prefix=JSON
// RUN: pump-graph-opt %s --budget=6MiB --up=1 --down=1 --report=html | FileCheck %s --check-prefix=HTML
// RUN: pump-graph-opt %s --budget=6MiB --up=1 --down=1 --sweep=3 --report=svg | FileCheck %s --check-prefix=CURVE
// RUN: pump-graph-opt %s --budget=6MiB --up=1 --down=1 --sweep=3 --rematerialize=never --report=svg | FileCheck %s --check-prefix=NEVER-CURVE
// RUN: pump-graph-opt %s --budget=6MiB --up=1 --down=1 --rematerialize=never --report=html | FileCheck %s --check-prefix=NEVER-HTML
// RUN: pump-graph-opt %s --budget=6MiB --up=1 --down=1 -o - | FileCheck %s --check-prefix=LOWERED
// RUN: pump-graph-opt %s --budget=6MiB --up=1 --down=1 -o - | pump-graph-opt --pass-pipeline='builtin.module(pump.graph(check-residency))' -o /dev/null
// RUN: pump-graph-opt %s --budget=6MiB --up=1 --down=1 --rematerialize=never | FileCheck %s --check-prefix=NEVER
// RUN: pump-graph-opt %s --budget=6MiB --up=1 --down=1 --rematerialize=never --report=json | FileCheck %s --check-prefix=NEVER-JSON
// RUN: pump-graph-opt %s --budget=10MiB --up=1 --down=1 -o - | FileCheck %s --check-prefix=FITS
// RUN: not pump-graph-opt %s --budget=6MiB --rematerialize=sometimes 2>&1 | FileCheck %s --check-prefix=BAD
// RUN: pump-graph-opt %s --budget=6MiB --up=1 --down=1 --plan-effort=low | FileCheck %s --check-prefix=TEXT
// RUN: not pump-graph-opt %s --budget=6MiB --plan-effort=high 2>&1 | FileCheck %s --check-prefix=EFFORT


// TEXT: 6.00 of 10.0 MiB; 1.25 x in-memory; limited by compute; 10.0 MiB removes it
// TEXT: repeated{{ +}}2 nodes
// TEXT-NEXT: or else{{ +}}8.81 ms 11.02 x in-memory, by a quick plan that only moves
// TEXT-NEXT: at the peak kept{{ +}}6.00 MiB
// TEXT-NEXT: moved{{ +}}0 B
// TEXT-NEXT: made again{{ +}}4.00 MiB
// TEXT: remakeable at the peak 8.00 MiB
// TEXT: checked: correct in every legal order of execution
// JSON: "repeated": {
// JSON-NEXT: "nodes": 2,
// JSON-NEXT: "time_s": 0.000{{2|1999}}
// JSON-NEXT: "bytes": 4194304
// JSON: "ways": {
// JSON-NEXT: "kept_bytes": 6291456
// JSON-NEXT: "moved_bytes": 0
// JSON-NEXT: "again_bytes": 4194304
// JSON: "moves_s": 0.0088
// HTML: "again":[{{[0,]*}}1{{[0,]*}}1{{[0,]*}}]}
// CURVE: path class="moves"
// CURVE: moves alone
// NEVER-CURVE-NOT: class="moves"
// NEVER-HTML: "again":[{{[0,]*}}]}
// LOWERED: pump.rematerialize "make
// LOWERED: pump.rematerialize "make
// LOWERED-NOT: pump.to_

// NEVER-NOT: repeated
// NEVER: added
// NEVER-NOT: repeated
// NEVER-JSON: "repeated": {
// NEVER-JSON-NEXT: "nodes": 0,
// NEVER-JSON-NEXT: "time_s": 0.0
// NEVER-JSON-NEXT: "bytes": 0
// NEVER-JSON: "ways": null
// NEVER-JSON-NEXT: "moves_s": null
// FITS-NOT: pump.rematerialize
// BAD: --rematerialize: "sometimes" is neither automatic nor never
// EFFORT: --plan-effort: "high" is neither low nor default
pump.graph @again {
  %a0 = pump.buffer "a0" private size(2097152)
  %a1 = pump.buffer "a1" private size(2097152)
  %a2 = pump.buffer "a2" private size(2097152)
  %a3 = pump.buffer "a3" private size(2097152)
  %sum = pump.buffer "sum" private live_out size(2097152)
  %k0 = pump.kernel "make_a0" pure node(0) [write %a0[0, 2097152] declared must(write)] cost(100.0)
  %k1 = pump.kernel "make_a1" pure node(1) after(%k0) [write %a1[0, 2097152] declared must(write)] cost(100.0)
  %k2 = pump.kernel "make_a2" pure node(2) after(%k1) [write %a2[0, 2097152] declared must(write)] cost(100.0)
  %k3 = pump.kernel "make_a3" pure node(3) after(%k2) [write %a3[0, 2097152] declared must(write)] cost(100.0)
  %k4 = pump.kernel "set" node(4) after(%k3) [read %a3[0, 2097152] declared, write %sum[0, 2097152] declared must(write)] cost(100.0)
  %k5 = pump.kernel "add_a2" node(5) after(%k4) [read %a2[0, 2097152] declared, readwrite %sum[0, 2097152] declared] cost(100.0)
  %k6 = pump.kernel "add_a1" node(6) after(%k5) [read %a1[0, 2097152] declared, readwrite %sum[0, 2097152] declared] cost(100.0)
  %k7 = pump.kernel "add_a0" node(7) after(%k6) [read %a0[0, 2097152] declared, readwrite %sum[0, 2097152] declared] cost(100.0)
}
