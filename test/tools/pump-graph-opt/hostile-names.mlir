// Names come from binaries, files and programs: no report and no message obeys one.
// RUN: %python %S/hostile_names.py %docs/../passes/ir/Passes.td %t | FileCheck %s
// CHECK: outputs of {{[6-9]}} reports and {{[3-9]}} passes
