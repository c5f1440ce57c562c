// RUN: rm -rf %t && split-file %s %t

// A trace is planned like a step; the link is that of the study it comes from.
// RUN: pump-graph-opt --import-trace=%t/four.json --budget=4MiB --report=json | FileCheck %s --check-prefix=JSON
// JSON: "name": "four",
// JSON: "nodes": 4,
// JSON: "in_memory_s": 0.001,
// JSON: "peak_bytes_before": 6291456,
// JSON: "budget_bytes": 4194304,
// JSON: "peak_bytes": 4194304,
// JSON: "up_bytes": 2097152,
// JSON: "down_bytes": 2097152,
// JSON: "limited_by": "link
// JSON: "checked": true,
// JSON: "up_bytes_per_second": 10000000000.0,
// JSON-NEXT: "down_bytes_per_second": 10000000000.0,
// JSON-NEXT: "both_bytes_per_second": 20000000000.0,
// JSON-NEXT: "hosted_share":
// JSON-NEXT: "beside_hosted_share":
// JSON-NEXT: "copy_overhead_s":
// JSON-NEXT: "host_bytes": null

// The command line overrules it. What is given of the link keeps the study's relation of both ways to one.
// RUN: pump-graph-opt --import-trace=%t/four.json --budget=4MiB --up=5 --host-memory=8MiB --report=json | FileCheck %s --check-prefix=LINK
// LINK: "up_bytes_per_second": 5000000000.0,
// LINK-NEXT: "down_bytes_per_second": 10000000000.0,
// LINK-NEXT: "both_bytes_per_second": 15000000000.0,
// LINK: "host_bytes": 8388608
// RUN: pump-graph-opt --import-trace=%t/four.json --both=12 --report=json | FileCheck %s --check-prefix=BOTH
// BOTH: "both_bytes_per_second": 12000000000.0,

// The lowered step is written as any other, every report can be had, and without a budget everything fits.
// RUN: pump-graph-opt --import-trace=%t/four.json --budget=4MiB --sweep=3 --report=svg:%t/c.svg --report=text:%t/r.txt -o %t/planned.mlir | count 0
// RUN: pump-graph-opt %t/planned.mlir --pass-pipeline='builtin.module(pump.graph(check-residency))' -o - | FileCheck %s --check-prefix=LOWERED
// LOWERED: pump.graph @four stage(lowered_virtual) budget(4194304)
// LOWERED: pump.to_host %a
// LOWERED: pump.to_device %a
// RUN: pump-graph-opt --import-trace=%t/four.json | FileCheck %s --check-prefix=FITS
// FITS: 6.00 of 6.00 MiB; 1.00 x in-memory; everything fits

// Gzipped, it is the same trace. In pages of half the size, the same bytes are in twice as many frames.
// RUN: gzip -k %t/four.json
// RUN: pump-graph-opt --import-trace=%t/four.json.gz --budget=4MiB -o %t/again.mlir
// RUN: diff %t/planned.mlir %t/again.mlir
// RUN: pump-graph-opt --import-trace=%t/four.json --page-size=1MiB --budget=4MiB --report=plan | FileCheck %s --check-prefix=PAGES
// PAGES: "page_bytes":1048576,

// Traces that are none, and plans that cannot be, with the file and what is wrong in it.
// RUN: not pump-graph-opt --import-trace=%t/syntax.json 2>&1 | FileCheck %s --check-prefix=SYNTAX
// SYNTAX: error: {{.*}}syntax.json: line 3, column 15: syntax error
// RUN: not pump-graph-opt --import-trace=%t/unwritten.json 2>&1 | FileCheck %s --check-prefix=UNWRITTEN
// UNWRITTEN: error: {{.*}}unwritten.json: kernel 0 "read_a": "reads": nothing has written tensor 0 "a" before
// RUN: sed 's/"reads": \[1\]/"reads": [7]/' %t/four.json > %t/unknown.json
// RUN: not pump-graph-opt --import-trace=%t/unknown.json 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: error: {{.*}}unknown.json: kernel 2 "write_c": "reads": 7 is no tensor; there are 3
// RUN: sed 's/"time_us": 100/"time_us": -100/' %t/four.json > %t/negative.json
// RUN: not pump-graph-opt --import-trace=%t/negative.json 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: error: {{.*}}negative.json: kernel 2 "write_c": "time_us": -100 is no number from 0 to
// RUN: sed -e 's/"id": 1, "name": "write_b"/"id": 3, "name": "write_b"/' %t/four.json > %t/order.json
// RUN: not pump-graph-opt --import-trace=%t/order.json 2>&1 | FileCheck %s --check-prefix=ORDER
// ORDER: error: {{.*}}order.json: kernel 1 "write_b": "id": 3 is out of order; here it has to be 1
// RUN: sed 's/"time_us": 100, //' %t/four.json > %t/field.json
// RUN: not pump-graph-opt --import-trace=%t/field.json 2>&1 | FileCheck %s --check-prefix=FIELD
// FIELD: error: {{.*}}field.json: kernel 2 "write_c": "time_us" is missing
// RUN: sed 's/"pcie_GBps": 10/"pcie_GBps": 0/' %t/four.json > %t/link.json
// RUN: not pump-graph-opt --import-trace=%t/link.json 2>&1 | FileCheck %s --check-prefix=STUDY-LINK
// STUDY-LINK: error: {{.*}}link.json: hardware_of_study: "pcie_GBps": 0 is no number from
// RUN: not pump-graph-opt --import-trace=%t/four.json --budget=3MiB --host-memory=1MiB 2>&1 | FileCheck %s --check-prefix=BUDGET
// BUDGET: error: {{.*}}four.json: node 2 "write_c" needs 4.0 MiB on the device at once; the budget is 3.0 MiB, and with 2.0 MiB of operands
// RUN: not pump-graph-opt --import-trace=%t/four.json --budget=4MiB --host-memory=1MiB -o %t/none.mlir 2>&1 | FileCheck %s --check-prefix=HOST
// HOST: error: {{.*}}four.json: the plan needs 2.0 MiB of host memory; 1.0 MiB may be used, 1.0 MiB are missing
// RUN: not ls %t/none.mlir
// RUN: not pump-graph-opt --import-trace=%t/missing.json 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: error: cannot open input file '{{.*}}missing.json': No such file or directory
// RUN: head -c 100 %t/four.json.gz > %t/cut.json.gz
// RUN: not pump-graph-opt --import-trace=%t/cut.json.gz 2>&1 | FileCheck %s --check-prefix=CUT
// CUT: error: "{{.*}}cut.json.gz" is a damaged or truncated gzip file

// Options that make no sense.
// RUN: not pump-graph-opt --import-trace=%t/four.json --up=0 2>&1 | FileCheck %s --check-prefix=NO-LINK
// NO-LINK: error: --up: "0" is no bandwidth: a link has to move more than 0 GB/s
// RUN: not pump-graph-opt --import-trace=%t/four.json --budget=0 2>&1 | FileCheck %s --check-prefix=NO-BUDGET
// NO-BUDGET: error: --budget: "0" is no budget: it has to be more than 0
// RUN: not pump-graph-opt --import-trace= 2>&1 | FileCheck %s --check-prefix=NO-FILE
// NO-FILE: error: --import-trace: no file is named
// RUN: not pump-graph-opt %t/planned.mlir --import-trace=%t/four.json 2>&1 | FileCheck %s --check-prefix=TWO
// TWO: error: --import-trace="{{.*}}four.json" takes the place of the input file "{{.*}}planned.mlir"; give one of them
// RUN: not pump-graph-opt --import-trace=%t/four.json --page-size=3MiB 2>&1 | FileCheck %s --check-prefix=ODD-PAGE
// ODD-PAGE: error: --page-size: "3MiB" is no page size: it has to be a power of 2, at least 4KiB
// RUN: not pump-graph-opt %t/planned.mlir --page-size=4MiB 2>&1 | FileCheck %s --check-prefix=NO-TRACE
// NO-TRACE: error: --page-size is for imported traces; a step has its own pages

// One of the recorded ones, in the benchmark's table.
// RUN: %python %S/../../../tools/pump-graph-bench --traces --only=VIT --no-lp --binaries=%build/bin --json=%t/t.json | FileCheck %s --check-prefix=TABLE
// TABLE:     ## Traces, no limit on host memory
// TABLE:     | VIT-512 | 40.0 GiB | 2.54 s | 2.54 s | 2.54 s | 2.54 s | 1.000 | 100.0 % | 33.4 % | 83.3 % | 100.0 % | 100.0 % | 0.0 GiB | 0.0 GiB |
// TABLE:     ## Traces, 128 GiB of host memory
// TABLE-NOT: BROKEN

//--- four.json
{
  "name": "four",
  "tensors": [
    {"id": 0, "name": "a", "kind": "intermediate", "bytes": 2097152},
    {"id": 1, "name": "b", "kind": "intermediate", "bytes": 2097152},
    {"id": 2, "name": "c", "kind": "intermediate", "bytes": 2097152}
  ],
  "kernels": [
    {"id": 0, "name": "write_a", "time_us": 300, "reads": [], "writes": [0]},
    {"id": 1, "name": "write_b", "time_us": 300, "reads": [], "writes": [1]},
    {"id": 2, "name": "write_c", "time_us": 100, "reads": [1], "writes": [2]},
    {"id": 3, "name": "read_a", "time_us": 300, "reads": [0], "writes": []}
  ],
  "hardware_of_study": {"pcie_GBps": 10, "pcie_full_duplex": true}
}
//--- syntax.json
{
  "name": "x",
  "tensors": nothing
}
//--- unwritten.json
{
  "name": "x",
  "tensors": [{"id": 0, "name": "a", "kind": "intermediate", "bytes": 4096}],
  "kernels": [{"id": 0, "name": "read_a", "time_us": 1, "reads": [0], "writes": []}]
}
