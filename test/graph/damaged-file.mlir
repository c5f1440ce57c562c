// A file that was cut short or overwritten: a located error and exit status 1, in text and in bytecode.
// RUN: head -c 200 %S/Inputs/step.mlir > %t.cut.mlir
// RUN: not pump-graph-opt %t.cut.mlir 2>&1 | FileCheck %s --check-prefix=CUT -DFILE=%t.cut.mlir
// CUT: [[FILE]]:{{[0-9]+}}:{{[0-9]+}}: error:

// RUN: pump-graph-opt %S/Inputs/step.mlir --emit-bytecode -o %t.mlirbc
// RUN: head -c 100 %t.mlirbc > %t.cut.mlirbc
// RUN: not pump-graph-opt %t.cut.mlirbc 2>&1 | FileCheck %s --check-prefix=CUT-BYTES -DFILE=%t.cut.mlirbc
// CUT-BYTES: [[FILE]]:0:0: error:

// RUN: not pump-graph-opt %t.nowhere.mlir 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: cannot open input file {{.*}}nowhere.mlir

// RUN: echo "this is not IR" > %t.text.mlir
// RUN: not pump-graph-opt %t.text.mlir 2>&1 | FileCheck %s --check-prefix=TEXT -DFILE=%t.text.mlir
// TEXT: [[FILE]]:1:1: error:
