// RUN: pump-graph-opt --insert-advise %s | FileCheck %s
// RUN: pump-graph-opt --insert-advise=accessed-by=false %s | FileCheck %s --check-prefix=UNMAPPED
// RUN: pump-graph-opt --insert-advise --check-managed %s -o /dev/null
// RUN: pump-graph-opt --insert-advise='read-mostly=false' %s | FileCheck %s --check-prefix=HOSTED
// RUN: pump-graph-opt --insert-advise='prefer-host=false' %s | FileCheck %s --check-prefix=MAPPED
// RUN: pump-graph-opt --insert-advise='accessed-by=false' --insert-advise %s | FileCheck %s

// What leaves and is only read is read mostly; what is written is not, nor what stays. What is hosted is to stay in
// host memory, and is mapped before it is touched, and not read mostly, or reading it would bring it. A second time it
// replaces what is there.
// CHECK-LABEL: pump.graph @step
// CHECK-NOT:     advise{{.*}}(%stays|%written)
// CHECK:         pump.advise "advise read" %read read_mostly
// CHECK-NEXT:    pump.advise "advise read" %read prefer_host
// CHECK-NEXT:    pump.advise "advise hosted" %hosted[2097152, 2097152] prefer_host
// CHECK-NEXT:    pump.advise "advise hosted" %hosted[2097152, 2097152] accessed_by
// CHECK-NEXT:    pump.advise "advise half" %half[2097152, 2097152] read_mostly
// CHECK-NEXT:    pump.advise "advise half" %half[2097152, 2097152] prefer_host
// CHECK-NEXT:    pump.advise "advise half" %half[0, 2097152] prefer_host
// CHECK-NEXT:    pump.advise "advise half" %half[0, 2097152] accessed_by
// CHECK-NEXT:    pump.kernel "first" node(0)
// CHECK-NOT:     pump.advise
// HOSTED-LABEL: pump.graph @step
// HOSTED-NOT:    read_mostly
// HOSTED:        pump.advise "advise hosted" %hosted[2097152, 2097152] prefer_host
// HOSTED-NEXT:   pump.advise "advise hosted" %hosted[2097152, 2097152] accessed_by
// HOSTED-NEXT:   pump.advise "advise half" %half[0, 2097152] prefer_host
// HOSTED-NEXT:   pump.advise "advise half" %half[0, 2097152] accessed_by
// HOSTED-NEXT:   pump.kernel "first"
// UNMAPPED-NOT:  accessed_by
// MAPPED-LABEL: pump.graph @step
// MAPPED:        pump.advise "advise read" %read read_mostly
// MAPPED-NEXT:   pump.advise "advise read" %read prefer_host
// MAPPED-NEXT:   pump.advise "advise hosted" %hosted[2097152, 2097152] accessed_by
// MAPPED-NEXT:   pump.advise "advise half" %half[2097152, 2097152] read_mostly
// MAPPED-NEXT:   pump.advise "advise half" %half[2097152, 2097152] prefer_host
// MAPPED-NEXT:   pump.advise "advise half" %half[0, 2097152] accessed_by
// MAPPED-NEXT:   pump.kernel "first"
pump.graph @step stage(lowered_managed) budget(8388608) {
  %read = pump.buffer "read" private live_in live_out size(2097152) frames(0)
  %written = pump.buffer "written" private live_in live_out size(2097152) frames(0)
  %stays = pump.buffer "stays" private live_in live_out size(2097152) frames(1)
  %hosted = pump.buffer "hosted" private live_in live_out size(4194304) frames(2, none) hosted([2097152, 2097152])
  %half = pump.buffer "half" private live_in live_out size(4194304) frames(none, 0) hosted([0, 2097152])
  %k0 = pump.kernel "first" node(0) [read %read[0, 2097152] declared, read %stays[0, 2097152] declared,
                                     read %hosted[0, 4194304] declared] cost(10.0)
  %e0 = pump.evict "evict read" %read after(%k0)
  %p1 = pump.prefetch "prefetch written" %written after(%k0, %e0)
  %k1 = pump.kernel "second" node(1) after(%k0, %p1) [readwrite %written[0, 2097152] declared] cost(10.0)
  %e1 = pump.evict "evict written" %written after(%p1, %k1)
  %p2 = pump.prefetch "prefetch half" %half[2097152, 2097152] after(%k1, %e1)
  %k2 = pump.kernel "third" node(2) after(%k1, %p2) [read %half[0, 4194304] declared] cost(10.0)
  %e2 = pump.evict "evict half" %half[2097152, 2097152] after(%p2, %k2)
}
