// The exported plan says which nodes run again: %a gives its frame to %b and is made once more.
// RUN: pump-graph-opt --lower-virtual --check-residency --export-plan=file=%t.json -o /dev/null %s
// RUN: FileCheck %s --check-prefix=NODES --input-file=%t.json
// NODES: "captured":0,"repeats":null,"pure":true,"kind":"kernel","name":"make"
// NODES: "captured":null,"repeats":0,"pure":true,"kind":"rematerialize","name":"make"
// RUN: %python %S/../../outsider/recompute.py %t.json | FileCheck %s --check-prefix=REPLAYED
// REPLAYED: "in_memory_s": 0.000{{3|2999}}
// REPLAYED: "predicted_s": 0.000{{4|3999}}
// REPLAYED: "up_bytes": 0

// RUN: sed 's/"pure":true/"pure":false/g' %t.json > %t.impure.json
// RUN: not %python %S/../../outsider/recompute.py %t.impure.json 2>&1 | FileCheck %s --check-prefix=IMPURE
// IMPURE: wrong: node 2 repeats node 0, which is not pure
pump.graph @again stage(planned) budget(6291456) {
  %x = pump.buffer "x" private live_in live_out size(2097152) frames(0) resident([0, 2097152])
  %a = pump.buffer "a" private size(2097152) frames(1)
  %b = pump.buffer "b" private size(2097152) frames(1)
  %out = pump.buffer "out" private live_out size(2097152) frames(2) resident([0, 2097152])
  %k0 = pump.kernel "make" pure node(0) [read %x[0, 2097152] declared, write %a[0, 2097152] declared must(write)] cost(100.0)
  %k1 = pump.kernel "other" node(1) after(%k0) [write %b[0, 2097152] declared must(write)] cost(100.0)
  %again = pump.rematerialize "make" of(0) pure after(%k1) [read %x[0, 2097152] declared, write %a[0, 2097152] declared must(write)] cost(100.0)
  %k2 = pump.kernel "use" node(2) after(%k1, %again) [read %a[0, 2097152] declared, write %out[0, 2097152] declared must(write)] cost(100.0)
}
