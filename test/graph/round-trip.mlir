// Every op and every clause of the syntax, read and written back: as text, in generic form, as bytecode.
// RUN: pump-graph-opt %s | FileCheck %s
// RUN: pump-graph-opt %s | pump-graph-opt | FileCheck %s
// RUN: pump-graph-opt %s --mlir-print-op-generic | pump-graph-opt | FileCheck %s
// RUN: pump-graph-opt %s --emit-bytecode | pump-graph-opt | FileCheck %s

// The facts of a step are written when they say something.
// CHECK: pump.graph @captured {
pump.graph @captured {
}

// How far it has come, unless it is as captured.
// CHECK: pump.graph @planned stage(planned) {
pump.graph @planned stage(planned) {
}
// CHECK: pump.graph @managed stage(lowered_managed) {
pump.graph @managed stage(lowered_managed) {
}
// CHECK: pump.graph @nothing_new {
pump.graph @nothing_new stage(captured) {
}

// CHECK: pump.graph @lowered stage(lowered_virtual) page_bytes(4096) budget(8589934592) host_bytes(65536) {
pump.graph @lowered stage(lowered_virtual) page_bytes(4096) budget(8589934592) host_bytes(65536) {
}

// A name that is no identifier is quoted.
// CHECK: pump.graph @"GPT-2 124M" {
pump.graph @"GPT-2 124M" {
}

// CHECK-LABEL: pump.graph @buffers
pump.graph @buffers stage(planned) page_bytes(4096) {
  // CHECK-NEXT: %plain = pump.buffer "plain" size(1)
  %b0 = pump.buffer "plain" size(1)
  // A buffer without a name is called buffer.
  // CHECK-NEXT: %buffer = pump.buffer size(8)
  %b1 = pump.buffer size(8)
  // CHECK-NEXT: %layer1.weight = pump.buffer "layer1.weight" private live_in live_out size(9437184) address(0x7f1200000000)
  %b2 = pump.buffer "layer1.weight" private live_in live_out size(9437184) address(0x7f1200000000)
  // Frames are written as runs; what does not ascend stands alone.
  // CHECK-NEXT: %runs = pump.buffer "runs" private size(40960) frames(0 to 3, none * 2, 9, 8, none, 7)
  %b3 = pump.buffer "runs" private size(40960) frames(0, 1 to 2, 3, none, none, 9, 8, none * 1, 7 to 7)
  // CHECK-NEXT: %at_home = pump.buffer "at_home" private live_in live_out size(12289) resident([0, 4096], [8192, 4097])
  %b4 = pump.buffer "at_home" private live_in live_out size(12289) resident([0, 4096], [8192, 4097])
  // CHECK-NEXT: %twice = pump.buffer "twice" private live_out size(12289) resident([0, 4096], [8192, 4097]) mirrored([0, 4096], [12288, 1])
  %b6 = pump.buffer "twice" private live_out size(12289) resident([0, 4096], [8192, 4097]) mirrored([0, 4096], [12288, 1])
  // CHECK-NEXT: %afar = pump.buffer "afar" private size(12289) frames(0, none * 3) hosted([4096, 4096], [8192, 4097])
  %b7 = pump.buffer "afar" private size(12289) frames(0, none * 3) hosted([4096, 4096], [8192, 4097])
  // CHECK-NEXT: %first = pump.buffer "first" private renamable size(8)
  %b8 = pump.buffer "first" private renamable size(8)
  // CHECK-NEXT: %first_0 = pump.buffer "first" private renamable continues(%first) size(8) frames(3)
  %b9 = pump.buffer "first" private renamable continues(%b8) size(8) frames(3)
  // CHECK-NEXT: %input = pump.buffer "input" private present live_in live_out size(8)
  %b10 = pump.buffer "input" private present live_in live_out size(8)
  // A name that text cannot hold is escaped, and never lost.
  // CHECK-NEXT: pump.buffer "quote\22 and\0Anewline" size(8)
  %b5 = pump.buffer "quote\" and\nnewline" size(8)
}

// CHECK-LABEL: pump.graph @captured_nodes
pump.graph @captured_nodes {
  %a = pump.buffer "a" size(4096)
  %b = pump.buffer "b" size(4096)
  // CHECK: %k0 = pump.kernel "_Z3addPKfPf" node(0) [read %a[0, 4096] proved, write %b[16, 32] declared must(write), readwrite %b[0, 1] observed must(read) parameter(1), readwrite %a[4095, 1] assumed must(readwrite), write %b[0, 8] allocated must(write)] cost(123.4)
  %k0 = pump.kernel "_Z3addPKfPf" node(0) [read %a[0, 4096] proved, write %b[16, 32] declared must(write),
    readwrite %b[0, 1] observed must(read) parameter(1), readwrite %a[4095, 1] assumed must(readwrite), write %b[0, 8] allocated must(write)] cost(123.4)
  // A label stands beside the name, with it or without.
  // CHECK-NEXT: pump.kernel "gemm" label("fc \22up\22 backward (mm)") cost(1.5)
  // CHECK-NEXT: pump.memset label("fc forward (zero_)")
  pump.kernel "gemm" label("fc \"up\" backward (mm)") cost(1.5)
  pump.memset label("fc forward (zero_)")
  pump.memset label("")
  // CHECK-NEXT: pump.memset{{$}}
  // CHECK-NEXT: %copy1 = pump.memcpy "Memcpy DtoD" node(1) after(%k0) [read %a[0, 8] proved must(read), write %b[8, 8] proved must(write)]
  %n1 = pump.memcpy "Memcpy DtoD" node(1) after(%k0) [read %a[0, 8] proved must(read), write %b[8, 8] proved must(write)]
  // CHECK-NEXT: %set2 = pump.memset node(2) after(%k0, %copy1) [write %b[0, 4096] proved must(write)]
  %n2 = pump.memset node(2) after(%k0, %n1) [write %b[0, 4096] proved must(write)]
  // CHECK-NEXT: %n3 = pump.host "callback" node(3) after(%set2) cost(2.0)
  %n3 = pump.host "callback" node(3) after(%n2) cost(2)
  // CHECK-NEXT: %n4 = pump.empty node(4) after(%n3)
  %n4 = pump.empty node(4) after(%n3)
  // CHECK-NEXT: pump.child_graph "body" node(5)
  %n5 = pump.child_graph "body" node(5) after(%n4) [readwrite %a[0, 4096] assumed]
  // CHECK-NEXT: pump.event_record node(6)
  %n6 = pump.event_record node(6)
  // CHECK-NEXT: pump.event_wait node(7)
  %n7 = pump.event_wait node(7)
  // CHECK-NEXT: pump.semaphore_signal node(8)
  %n8 = pump.semaphore_signal node(8)
  // CHECK-NEXT: pump.semaphore_wait node(9)
  %n9 = pump.semaphore_wait node(9)
  // CHECK-NEXT: pump.mem_alloc node(10)
  %n10 = pump.mem_alloc node(10)
  // CHECK-NEXT: pump.mem_free node(11)
  %n11 = pump.mem_free node(11)
  // CHECK-NEXT: pump.batch_mem_op node(12)
  %n12 = pump.batch_mem_op node(12)
  // CHECK-NEXT: pump.conditional "while" node(13)
  %n13 = pump.conditional "while" node(13)
  // CHECK-NEXT: pump.opaque "?" reason("a kind this driver has and we do not") node(14)
  %n14 = pump.opaque "?" reason("a kind this driver has and we do not") node(14)
  // An edge says of which kind it is, unless it is a full one.
  // CHECK-NEXT: %k15 = pump.kernel "next" node(15) after(%k0 programmatic, %n14)
  %k15 = pump.kernel "next" node(15) after(%k0 programmatic, %n14)
}

// CHECK-LABEL: pump.graph @added_nodes
pump.graph @added_nodes stage(lowered_managed) page_bytes(4096) {
  %a = pump.buffer "a" private size(10000)
  // The whole buffer need not be spelled out.
  // CHECK: %a.evict = pump.evict %a
  %e0 = pump.evict %a
  // The last page may be partial.
  // CHECK-NEXT: %a.prefetch = pump.prefetch %a[8192, 1808] after(%a.evict)
  %p0 = pump.prefetch %a[8192, 1808] after(%e0)
  // CHECK-NEXT: %a.discard = pump.discard "dead" %a[0, 4096] after(%a.prefetch) cost(0.5)
  %d0 = pump.discard "dead" %a[0, 4096] after(%p0) cost(0.5)
  // CHECK-NEXT: pump.advise %a read_mostly
  %a0 = pump.advise %a read_mostly
  // CHECK-NEXT: pump.advise %a[0, 8192] prefer_host
  %a1 = pump.advise %a[0, 8192] prefer_host
  // CHECK-NEXT: pump.advise %a prefer_device
  %a2 = pump.advise %a prefer_device
  // CHECK-NEXT: pump.advise %a accessed_by
  %a3 = pump.advise %a accessed_by
}

// CHECK-LABEL: pump.graph @copies
pump.graph @copies stage(lowered_virtual) page_bytes(4096) {
  %a = pump.buffer "a" private size(10000)
  // CHECK: %a.to_host = pump.to_host %a[0, 4096] host(65536) node(7)
  %h0 = pump.to_host %a[0, 4096] host(65536) node(7)
  // CHECK-NEXT: %a.to_device = pump.to_device %a[0, 4096] host(65536) after(%a.to_host)
  %h1 = pump.to_device %a[0, 4096] host(65536) after(%h0)
}

// CHECK-LABEL: pump.graph @rematerialized
pump.graph @rematerialized page_bytes(4096) {
  %a = pump.buffer "a" private size(4096)
  // CHECK: %k3 = pump.kernel "relu" pure node(3)
  %k3 = pump.kernel "relu" pure node(3) [write %a[0, 4096] declared must(write) parameter(0)]
  // CHECK-NEXT: %again3 = pump.rematerialize "relu" of(3) pure label("layer1.relu") after(%k3) [write %a[0, 4096] declared must(write) parameter(0)] cost(2.0) arithmetic(1.5)
  %again = pump.rematerialize "relu" of(3) pure label("layer1.relu") after(%k3) [write %a[0, 4096] declared must(write) parameter(0)] cost(2.0) arithmetic(1.5)
}

// CHECK-LABEL: pump.graph @aside
pump.graph @aside page_bytes(4096) {
  %a = pump.buffer "a" private size(4096)
  %mean = pump.buffer "mean" live_in live_out size(256)
  // CHECK: [write %a[0, 4096] declared must(write) parameter(0), readwrite %mean[0, 256] assumed parameter(1) slowdown(2.0) aside, readwrite %mean[128, 8] assumed parameter(2) aside]
  %k3 = pump.kernel "norm" pure node(3) [write %a[0, 4096] declared must(write) parameter(0), readwrite %mean[0, 256] assumed parameter(1) slowdown(2.0) aside, readwrite %mean[128, 8] assumed parameter(2) aside]
  // CHECK-NEXT: %again3 = pump.rematerialize "norm" of(3) pure after(%k3) [write %a[0, 4096] declared must(write) parameter(0)]
  %again = pump.rematerialize "norm" of(3) pure after(%k3) [write %a[0, 4096] declared must(write) parameter(0)]
}

// Times are written with as few digits as read back as the same number.
// CHECK-LABEL: pump.graph @costs
pump.graph @costs {
  // CHECK: cost(0.1)
  pump.kernel cost(0.1)
  // CHECK: cost(0.30000000000000004)
  pump.kernel cost(0.30000000000000004)
  // CHECK: cost(1.0e+22)
  pump.kernel cost(10000000000000000000000.0)
  // CHECK: cost(5.0e-324)
  pump.kernel cost(5.0e-324)
  // CHECK: cost(1.7976931348623157e+308)
  pump.kernel cost(1.7976931348623157e+308)
  // CHECK: cost(0.0)
  pump.kernel cost(0)
  // CHECK: cost(2.5) arithmetic(0.1)
  pump.kernel cost(2.5) arithmetic(0.1)
}

// Foreign attributes survive.
// CHECK-LABEL: pump.graph @attributes attributes {module.name = "layer1"}
pump.graph @attributes attributes {module.name = "layer1"} {
  // CHECK-NEXT: pump.kernel "k" {line = 17 : i64}
  pump.kernel "k" {line = 17}
}
