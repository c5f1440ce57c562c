pump.graph @captured {
}

pump.graph @lowered page_bytes(4096) budget(8589934592) host_bytes(65536) {
}

pump.graph @"GPT-2 124M" {
}

pump.graph @buffers page_bytes(4096) {
  %b0 = pump.buffer "plain" size(1)
  %b1 = pump.buffer size(8)
  %b2 = pump.buffer "layer1.weight" private live_in live_out size(9437184) address(0x7f1200000000)
  %b3 = pump.buffer "runs" private size(40960) frames(0, 1 to 2, 3, none, none, 9, 8, none * 1, 7 to 7)
  %b4 = pump.buffer "at_home" private live_in live_out size(12289) resident([0, 4096], [8192, 4097])
  %b6 = pump.buffer "twice" private live_out size(12289) resident([0, 4096], [8192, 4097]) mirrored([0, 4096], [12288, 1])
  %b7 = pump.buffer "afar" private size(12289) frames(0, none * 3) hosted([4096, 4096], [8192, 4097])
  %b8 = pump.buffer "first" private renamable size(8)
  %b9 = pump.buffer "first" private renamable continues(%b8) size(8) frames(3)
  %b10 = pump.buffer "input" private present live_in live_out size(8)
  %b5 = pump.buffer "quote\" and\nnewline" size(8)
}

pump.graph @captured_nodes {
  %a = pump.buffer "a" size(4096)
  %b = pump.buffer "b" size(4096)
  %k0 = pump.kernel "_Z3addPKfPf" node(0) [read %a[0, 4096] proved, write %b[16, 32] declared must(write),
    readwrite %b[0, 1] observed must(read) parameter(1), readwrite %a[4095, 1] assumed must(readwrite), write %b[0, 8] allocated must(write)] cost(123.4)
  pump.kernel "gemm" label("fc \"up\" backward (mm)") cost(1.5)
  pump.memset label("fc forward (zero_)")
  pump.memset label("")
  %n1 = pump.memcpy "Memcpy DtoD" node(1) after(%k0) [read %a[0, 8] proved must(read), write %b[8, 8] proved must(write)]
  %n2 = pump.memset node(2) after(%k0, %n1) [write %b[0, 4096] proved must(write)]
  %n3 = pump.host "callback" node(3) after(%n2) cost(2)
  %n4 = pump.empty node(4) after(%n3)
  %n5 = pump.child_graph "body" node(5) after(%n4) [readwrite %a[0, 4096] assumed]
  %n6 = pump.event_record node(6)
  %n7 = pump.event_wait node(7)
  %n8 = pump.semaphore_signal node(8)
  %n9 = pump.semaphore_wait node(9)
  %n10 = pump.mem_alloc node(10)
  %n11 = pump.mem_free node(11)
  %n12 = pump.batch_mem_op node(12)
  %n13 = pump.conditional "while" node(13)
  %n14 = pump.opaque "?" reason("a kind this driver has and we do not") node(14)
  %k15 = pump.kernel "next" node(15) after(%k0 programmatic, %n14)
}

pump.graph @added_nodes page_bytes(4096) {
  %a = pump.buffer "a" private size(10000)
  %e0 = pump.evict %a
  %p0 = pump.prefetch %a[8192, 1808] after(%e0)
  %d0 = pump.discard "dead" %a[0, 4096] after(%p0) cost(0.5)
  %a0 = pump.advise %a read_mostly
  %a1 = pump.advise %a[0, 8192] prefer_host
  %a2 = pump.advise %a prefer_device
  %a3 = pump.advise %a accessed_by
  %h0 = pump.to_host %a[0, 4096] host(65536) node(7) after(%d0)
  %h1 = pump.to_device %a[0, 4096] host(65536) after(%h0)
}

pump.graph @costs {
  pump.kernel cost(0.1)
  pump.kernel cost(0.30000000000000004)
  pump.kernel cost(10000000000000000000000.0)
  pump.kernel cost(5.0e-324)
  pump.kernel cost(1.7976931348623157e+308)
  pump.kernel cost(0)
}

pump.graph @attributes attributes {module.name = "layer1"} {
  pump.kernel "k" {line = 17}
}
