// RUN: pump-graph-opt --annotate-accesses %s | FileCheck %s
// Whoever is the first to use what has just been allocated overwrites it, whatever its type says of the parameter.

pump.graph @step {
  %a = pump.buffer "a" size(4096)
  // CHECK: [readwrite %a[0, 4096] allocated must(write) parameter(0), read %a[0, 4096] declared parameter(1)]
  %k0 = pump.kernel "_Z3addPKfS0_" node(0) [readwrite %a[0, 4096] allocated must(write) parameter(0), readwrite %a[0, 4096] assumed parameter(1)]
}
