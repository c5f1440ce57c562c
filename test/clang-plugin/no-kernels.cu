// SPDX-License-Identifier: Apache-2.0
// A source without kernels: no table, no complaint.
// RUN: %annotate -O2 -c %s -o %t.o 2>&1 | count 0
// RUN: llvm-readelf -S %t.o | FileCheck %s
// CHECK-NOT: pumpgraph_access
__device__ float twice(float value) {
  return 2 * value;
}
int main() {}
