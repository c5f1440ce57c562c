// SPDX-License-Identifier: Apache-2.0
// RUN: not %annotate -fplugin-arg-pumpgraph-colour=red -c %s -o %t.o 2>&1 | FileCheck %s
// CHECK: error: pumpgraph: unknown argument 'colour=red'; it knows json=FILE
__global__ void kernel() {}
