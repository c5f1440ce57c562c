// The exported plan says which pages are in both places between steps: %a gives its frame to %b without a copy.
// RUN: pump-graph-opt --lower-virtual --check-residency --export-plan=file=%t.json -o /dev/null %s
// RUN: FileCheck %s --check-prefix=MIRRORED --input-file=%t.json
// MIRRORED: "resident":[{"offset":0,"size":2097152}],"mirrored":[{"offset":0,"size":2097152}]
// RUN: %python %S/../../outsider/recompute.py %t.json | FileCheck %s --check-prefix=REPLAYED
// REPLAYED: "up_bytes": 2097152,
// REPLAYED: "down_bytes": 2097152

// Without the mirror nobody knows where the value comes from that is prefetched.
// RUN: sed 's/"mirrored":\[{"offset":0,"size":2097152}\]/"mirrored":[]/' %t.json > %t.unmirrored.json
// RUN: not %python %S/../../outsider/recompute.py %t.unmirrored.json 2>&1 | FileCheck %s --check-prefix=UNMIRRORED
// UNMIRRORED: wrong:
pump.graph @mirrored stage(planned) budget(2097152) {
  %a = pump.buffer "a" private live_in live_out size(2097152) frames(0) resident([0, 2097152]) mirrored([0, 2097152])
  %b = pump.buffer "b" private size(2097152) frames(0)
  %k0 = pump.kernel "read_a" node(0) [read %a[0, 2097152] declared]
  %k1 = pump.kernel "write_b" node(1) after(%k0) [write %b[0, 2097152] declared must(write)]
  %p = pump.prefetch %a after(%k1)
  %k2 = pump.kernel "update_a" node(2) after(%p) [readwrite %a[0, 2097152] declared]
  %e = pump.evict %a after(%k2)
}
