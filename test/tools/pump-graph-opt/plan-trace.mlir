// RUN: pump-graph-opt %s --budget=4MiB --up=50 --down=50 --plan-trace=- | FileCheck %s
// RUN: pump-graph-opt %s --budget=4MiB --up=50 --down=50 --plan-trace=%t.csv --report=text | FileCheck %s --check-prefix=TEXT
// RUN: FileCheck %s < %t.csv
// RUN: pump-graph-opt %s --budget=4MiB --up=50 --down=50 --report=html | FileCheck %s --check-prefix=HTML
// RUN: pump-graph-opt %s --budget=6MiB --plan-trace=- | FileCheck %s --check-prefix=FITS
// RUN: not pump-graph-opt %s --plan-trace=- --report=text 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not pump-graph-opt %s --plan-trace= 2>&1 | FileCheck %s --check-prefix=NO-FILE

// A row for each attempt: the first finds a plan, so it saves nothing.
// CHECK:      proposer,piece_bytes,before_us,after_us,effort,kept
// CHECK-NEXT: shares,{{[0-9]+}},,{{[0-9.]+}},{{[0-9]+}},1

// TEXT: search tried kept saved effort
// TEXT: shares {{[1-9][0-9]* [1-9][0-9]* }}

// HTML: <h2>The planner's search</h2>
// HTML: <td class="name">shares</td>

// Where everything fits nothing is searched for.
// FITS:      proposer,
// FITS-NEXT: no transfers,
// FITS-NOT:  shares

// TWICE: 2 outputs go to standard output; name files for all but one
// NO-FILE: --plan-trace: no file is named

pump.graph @four {
  %a = pump.buffer "a" private size(2097152)
  %b = pump.buffer "b" private size(2097152)
  %c = pump.buffer "c" private size(2097152)
  %k0 = pump.kernel "write_a" node(0) [write %a[0, 2097152] declared must(write)] cost(100.0)
  %k1 = pump.kernel "write_b" node(1) after(%k0) [write %b[0, 2097152] declared must(write)] cost(100.0)
  %k2 = pump.kernel "write_c" node(2) after(%k1) [read %b[0, 2097152] declared, write %c[0, 2097152] declared must(write)] cost(10.0)
  %k3 = pump.kernel "read_a" node(3) after(%k2) [read %a[0, 2097152] declared] cost(100.0)
}
