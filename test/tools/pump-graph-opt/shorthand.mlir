// RUN: pump-graph-opt %s --budget=4MiB --up=50 --down=50 -o - | FileCheck %s --check-prefix=LOWERED
// RUN: pump-graph-opt %s --budget=4MiB --up=50 --down=50 -o - | pump-graph-opt --pass-pipeline='builtin.module(pump.graph(check-residency))' -o /dev/null
// RUN: pump-graph-opt %s --budget=4MiB --up=50 --down=50 | FileCheck %s --check-prefix=TEXT
// RUN: pump-graph-opt %s --report=text | FileCheck %s --check-prefix=FITS
// RUN: pump-graph-opt %s --budget=100%% -o - | FileCheck %s --check-prefix=UNTOUCHED

// In two frames of 2 MiB, "a" leaves after its first use, its frame goes to "c", and it is back before its last use.
// LOWERED:     pump.graph @four stage(lowered_virtual) budget(4194304) host_bytes(2097152)
// LOWERED:     [[WRITE_A:%.*]] = pump.kernel "write_a"
// LOWERED:     [[DOWN:%.*]] = pump.to_host %a host(0) after([[WRITE_A]])
// LOWERED:     [[WRITE_C:%.*]] = pump.kernel "write_c" node(2) after({{.*}}, [[DOWN]])
// LOWERED:     [[UP:%.*]] = pump.to_device %a host(0) after([[WRITE_C]])
// LOWERED:     pump.kernel "read_a" node(3) after({{.*}}, [[UP]])
// LOWERED-NOT: pump.to_

// The default report is the text.
// TEXT:      four: 4 nodes, 3 buffers
// TEXT-NEXT: 4.00 of 6.00 MiB; {{[0-9.]+}} x in-memory; limited by
// TEXT:      peak before   6.00 MiB
// TEXT-NEXT: budget        4.00 MiB
// TEXT-NEXT: peak after    4.00 MiB
// TEXT:      up            2.00 MiB   in 1 copy
// TEXT-NEXT: down          2.00 MiB   in 1 copy
// TEXT:      added       2 nodes
// TEXT:      waits for
// TEXT-NEXT: "a" (2.00 MiB up){{ +}}node 3 "read_a"
// TEXT-NEXT: checked: correct in every legal order of execution

// Without a budget everything fits.
// FITS:     6.00 of 6.00 MiB; 1.00 x in-memory; everything fits
// FITS:     stalls      none

// UNTOUCHED:     pump.kernel "write_a"
// UNTOUCHED-NOT: pump.to_
pump.graph @four {
  %a = pump.buffer "a" private size(2097152)
  %b = pump.buffer "b" private size(2097152)
  %c = pump.buffer "c" private size(2097152)
  %k0 = pump.kernel "write_a" node(0) [write %a[0, 2097152] declared must(write)] cost(100.0)
  %k1 = pump.kernel "write_b" node(1) after(%k0) [write %b[0, 2097152] declared must(write)] cost(100.0)
  %k2 = pump.kernel "write_c" node(2) after(%k1) [read %b[0, 2097152] declared, write %c[0, 2097152] declared must(write)] cost(10.0)
  %k3 = pump.kernel "read_a" node(3) after(%k2) [read %a[0, 2097152] declared] cost(100.0)
}
