// A wrong value is named, and what would be right.
// RUN: not pump-graph-opt %s --budget=8Gob 2>&1 | FileCheck %s --check-prefix=UNIT
// UNIT: error: --budget: unknown unit "Gob" in "8Gob"; known: B, KiB, MiB, GiB, TiB, KB, MB, GB, TB
// RUN: not pump-graph-opt %s --budget=0 2>&1 | FileCheck %s --check-prefix=NO-BUDGET
// NO-BUDGET: error: --budget: "0" is no budget: it has to be more than 0
// RUN: not pump-graph-opt %s --up=0 2>&1 | FileCheck %s --check-prefix=NO-LINK
// NO-LINK: error: --up: "0" is no bandwidth: a link has to move more than 0 GB/s
// RUN: not pump-graph-opt %s --down=-55 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: error: --down: "-55" is no bandwidth: a link has to move more than 0 GB/s
// RUN: not pump-graph-opt %s --host-memory=64bits 2>&1 | FileCheck %s --check-prefix=HOST
// HOST: error: --host-memory: unknown unit "bits" in "64bits"
// RUN: not pump-graph-opt %s --report=pdf:x 2>&1 | FileCheck %s --check-prefix=REPORT
// REPORT: error: --report: unknown report "pdf"; known: text, json, html, svg, plan, timeline, memory-viz
// RUN: not pump-graph-opt %s --report=json: 2>&1 | FileCheck %s --check-prefix=NO-FILE
// NO-FILE: error: --report: "json:" names no file after the colon
// RUN: not pump-graph-opt %s --sweep=1 2>&1 | FileCheck %s --check-prefix=SWEEP
// SWEEP: error: --sweep: "1" is no number of budgets between 2 and 1000

// So is what does not go together.
// RUN: not pump-graph-opt %s --report=svg 2>&1 | FileCheck %s --check-prefix=CURVE
// CURVE: error: --report=svg draws step time against budget: it needs --sweep
// RUN: not pump-graph-opt %s --report=text --report=json 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not pump-graph-opt %s --report=text -o - 2>&1 | FileCheck %s --check-prefix=TWICE
// TWICE: error: 2 outputs go to standard output; name files for all but one
// RUN: not pump-graph-opt %s --budget=50%% --check-residency 2>&1 | FileCheck %s --check-prefix=PASSES
// RUN: not pump-graph-opt %s --budget=50%% --pass-pipeline='builtin.module()' 2>&1 | FileCheck %s --check-prefix=PASSES
// PASSES: error: passes and the budget shorthand do not go together

// Files that cannot be read or written.
// RUN: not pump-graph-opt %t.missing.mlir --budget=50%% 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: error: cannot open input file '{{.*}}missing.mlir': No such file or directory
// RUN: not pump-graph-opt %s --report=html:%t.none/r.html 2>&1 | FileCheck %s --check-prefix=UNWRITABLE
// UNWRITABLE: error: cannot write "{{.*}}.none/r.html": No such file or directory
// RUN: not pump-graph-opt %s -o %t.none/planned.mlir --budget=100%% 2>&1 | FileCheck %s --check-prefix=UNWRITABLE-IR
// UNWRITABLE-IR: error: cannot write "{{.*}}.none/planned.mlir": No such file or directory
pump.graph @one {
  %a = pump.buffer "a" private size(2097152)
  %k0 = pump.kernel "write_a" node(0) [write %a[0, 2097152] declared must(write)] cost(1.0)
}
