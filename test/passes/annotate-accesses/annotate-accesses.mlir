// RUN: pump-graph-opt --annotate-accesses %s | FileCheck %s

// What is reached through a pointer to constant data may only be read; the other pointer stays as it was.
// CHECK-LABEL: pump.graph @constant_parameter
pump.graph @constant_parameter {
  %a = pump.buffer "a" size(4096)
  %b = pump.buffer "b" size(4096)
  // CHECK: pump.kernel "_Z3addPKfPf" [read %a[0, 4096] declared parameter(0), readwrite %b[0, 4096] assumed parameter(1)]
  pump.kernel "_Z3addPKfPf" [readwrite %a[0, 4096] assumed parameter(0), readwrite %b[0, 4096] assumed parameter(1)]
}

// Where the pointer was found inside a struct, or the name holds no types, nothing is declared.
// CHECK-LABEL: pump.graph @no_declaration
pump.graph @no_declaration {
  %a = pump.buffer "a" size(4096)
  // CHECK: [readwrite %a[0, 4096] assumed]
  pump.kernel "_Z3addPKfPf" [readwrite %a[0, 4096] assumed]
  // CHECK: [readwrite %a[0, 4096] assumed parameter(0)]
  pump.kernel "sgemm" [readwrite %a[0, 4096] assumed parameter(0)]
}

// One buffer through both pointers: what may be written through the second stays written.
// CHECK-LABEL: pump.graph @aliased
pump.graph @aliased {
  %a = pump.buffer "a" size(4096)
  // CHECK: [read %a[0, 4096] declared parameter(0), readwrite %a[0, 4096] assumed parameter(1)]
  pump.kernel "_Z3addPKfPf" [readwrite %a[0, 4096] assumed parameter(0), readwrite %a[0, 4096] assumed parameter(1)]
}

// A copy reads all of its source and overwrites all of its destination; a fill overwrites.
// CHECK-LABEL: pump.graph @copies_and_fills
pump.graph @copies_and_fills {
  %a = pump.buffer "a" size(4096)
  %b = pump.buffer "b" size(4096)
  // CHECK: pump.memcpy [read %a[0, 64] proved must(read), write %b[128, 64] proved must(write)]
  pump.memcpy [read %a[0, 64] assumed, write %b[128, 64] assumed]
  // CHECK: pump.memset [write %b[0, 4096] proved must(write)]
  pump.memset [readwrite %b[0, 4096] assumed]
}

// A copy whose ends the lift could not tell apart proves nothing.
// CHECK-LABEL: pump.graph @copy_of_unknown_direction
pump.graph @copy_of_unknown_direction {
  %a = pump.buffer "a" size(4096)
  // CHECK: pump.memcpy [readwrite %a[0, 64] assumed]
  pump.memcpy [readwrite %a[0, 64] assumed]
}

// What is known better is left alone; what was observed gives way to a type.
// CHECK-LABEL: pump.graph @better_evidence
pump.graph @better_evidence {
  %a = pump.buffer "a" size(4096)
  // CHECK: [readwrite %a[0, 4096] declared parameter(0)]
  pump.kernel "_Z3addPKfPf" [readwrite %a[0, 4096] declared parameter(0)]
  // CHECK: [read %a[0, 4096] declared parameter(0), write %a[0, 4096] observed parameter(1)]
  pump.kernel "_Z3addPKfPf" [readwrite %a[0, 4096] observed parameter(0), write %a[0, 4096] observed parameter(1)]
}
