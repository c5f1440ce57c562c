// RUN: pump-graph-opt --annotate-accesses=tables=%S/Inputs/tables.jsonl %s 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=WARNING < %t

// A kernel in the table gets the modes of its parameters. What touches nothing goes. Of what is no slot nothing is
// said. Ranges stay.
// CHECK-LABEL: pump.graph @modes
pump.graph @modes {
  %a = pump.buffer "a" size(4096)
  %b = pump.buffer "b" size(4096)
  // CHECK: pump.kernel "copy" [write %a[0, 4096] proved parameter(0), read %b[0, 4096] proved parameter(1),
  // CHECK-SAME: readwrite %b[0, 4096] assumed parameter(2)]
  pump.kernel "copy" [readwrite %a[0, 4096] assumed parameter(0), readwrite %b[0, 4096] assumed parameter(1),
                      readwrite %b[0, 4096] assumed parameter(2), readwrite %a[0, 4096] assumed parameter(3)]
  // CHECK: pump.kernel "another" [readwrite %a[0, 4096] assumed parameter(0)]
  pump.kernel "another" [readwrite %a[0, 4096] assumed parameter(0)]
}

// Which slot of a struct an access belongs to is not known: it may do what any slot may.
// CHECK-LABEL: pump.graph @structs
pump.graph @structs {
  %a = pump.buffer "a" size(4096)
  // CHECK: pump.kernel "sum_of_structs" [read %a[0, 4096] proved]
  pump.kernel "sum_of_structs" [readwrite %a[0, 4096] assumed]
  // CHECK: pump.kernel "copy" [readwrite %a[0, 4096] proved]
  pump.kernel "copy" [readwrite %a[0, 4096] assumed]
}

// A slot that is not understood leaves what was known.
// CHECK-LABEL: pump.graph @unresolved
pump.graph @unresolved {
  %a = pump.buffer "a" size(4096)
  // CHECK: pump.kernel "_Z3addPKfPf" [read %a[0, 4096] declared parameter(1)]
  pump.kernel "_Z3addPKfPf" [read %a[0, 4096] declared parameter(1)]
  // CHECK: pump.kernel "_Z3addPKfPf" [readwrite %a[0, 4096] assumed]
  pump.kernel "_Z3addPKfPf" [readwrite %a[0, 4096] assumed]
}

// A kernel that touches other memory may use any word.
// CHECK-LABEL: pump.graph @other_memory
pump.graph @other_memory {
  %a = pump.buffer "a" size(4096)
  // CHECK: [read %a[0, 4096] proved parameter(0), readwrite %a[0, 4096] assumed parameter(1)]
  pump.kernel "global" [readwrite %a[0, 4096] assumed parameter(0), readwrite %a[0, 4096] assumed parameter(1)]
  // CHECK: [readwrite %a[0, 4096] assumed]
  pump.kernel "global" [readwrite %a[0, 4096] assumed]
}

// Proved beats declared and observed, with a warning where less was declared or more was observed; what is proved
// already stays, and what an access must do that it may still do, unless that was only observed.
// CHECK-LABEL: pump.graph @evidence
pump.graph @evidence {
  %a = pump.buffer "a" size(4096)
  // WARNING: tables.mlir:[[@LINE+2]]:3: warning: "_Z3addPKfPf" may do more through parameter 0 than is declared, says the access table
  // CHECK: [readwrite %a[0, 4096] proved must(read) parameter(0)]
  pump.kernel "_Z3addPKfPf" [read %a[0, 4096] declared must(read) parameter(0)]
  // WARNING-NOT: warning
  // CHECK: [readwrite %a[0, 4096] proved parameter(0)]
  pump.kernel "_Z3addPKfPf" [read %a[0, 4096] observed parameter(0)]
  // CHECK: [read %a[0, 64] proved parameter(0), write %a[0, 4096] proved parameter(0)]
  pump.kernel "copy" [read %a[0, 64] proved parameter(0), write %a[0, 4096] observed must(write) parameter(0)]
}
