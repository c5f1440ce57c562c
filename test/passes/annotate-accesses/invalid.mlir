// RUN: not pump-graph-opt --annotate-accesses=tables=%S/Inputs/no-mode.jsonl %s 2>&1 | FileCheck %s --check-prefix=MODE
// RUN: not pump-graph-opt --annotate-accesses=tables=%S/Inputs/no-slots.jsonl %s 2>&1 | FileCheck %s --check-prefix=SLOTS
// RUN: not pump-graph-opt --annotate-accesses=tables=%s %s 2>&1 | FileCheck %s --check-prefix=TEXT
// RUN: not pump-graph-opt --annotate-accesses=tables=%t.nowhere %s 2>&1 | FileCheck %s --check-prefix=NONE

// A table that cannot be understood is not half believed.
// MODE: invalid.mlir:[[@LINE+4]]:1: error: cannot take access tables from '{{.*}}no-mode.jsonl': line 2, kernel "copy": "sometimes" is no mode
// SLOTS: invalid.mlir:[[@LINE+3]]:1: error: cannot take access tables from '{{.*}}no-slots.jsonl': line 1, kernel "copy": {{.*}}slots
// TEXT: invalid.mlir:[[@LINE+2]]:1: error: cannot take access tables from '{{.*}}invalid.mlir': line 1: {{.*}}parse error
// NONE: invalid.mlir:[[@LINE+1]]:1: error: cannot open input file '{{.*}}nowhere'
pump.graph @step {
  pump.kernel "copy"
}
