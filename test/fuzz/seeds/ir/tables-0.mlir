pump.graph @modes {
  %a = pump.buffer "a" size(4096)
  %b = pump.buffer "b" size(4096)
  pump.kernel "copy" [readwrite %a[0, 4096] assumed parameter(0), readwrite %b[0, 4096] assumed parameter(1),
                      readwrite %b[0, 4096] assumed parameter(2), readwrite %a[0, 4096] assumed parameter(3)]
  pump.kernel "another" [readwrite %a[0, 4096] assumed parameter(0)]
}

pump.graph @structs {
  %a = pump.buffer "a" size(4096)
  pump.kernel "sum_of_structs" [readwrite %a[0, 4096] assumed]
  pump.kernel "copy" [readwrite %a[0, 4096] assumed]
}

pump.graph @unresolved {
  %a = pump.buffer "a" size(4096)
  pump.kernel "_Z3addPKfPf" [read %a[0, 4096] declared parameter(1)]
  pump.kernel "_Z3addPKfPf" [readwrite %a[0, 4096] assumed]
}

pump.graph @other_memory {
  %a = pump.buffer "a" size(4096)
  pump.kernel "global" [readwrite %a[0, 4096] assumed parameter(0), readwrite %a[0, 4096] assumed parameter(1)]
  pump.kernel "global" [readwrite %a[0, 4096] assumed]
}

pump.graph @evidence {
  %a = pump.buffer "a" size(4096)
  pump.kernel "_Z3addPKfPf" [read %a[0, 4096] declared must(read) parameter(0)]
  pump.kernel "_Z3addPKfPf" [read %a[0, 4096] observed parameter(0)]
  pump.kernel "copy" [read %a[0, 64] proved parameter(0), write %a[0, 4096] observed must(write) parameter(0)]
}
