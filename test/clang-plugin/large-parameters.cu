// SPDX-License-Identifier: Apache-2.0
// As many bytes of parameters as a kernel can have, all but four bytes in pointers: each has a slot.
// RUN: %accesses -O2 %s | %print > %t && FileCheck %s < %t
// RUN: grep -c 'parameter' %t | FileCheck --check-prefix=COUNT %s
// RUN: %accesses -O0 %s | %print | grep -c 'parameter' | FileCheck --check-prefix=COUNT %s
// RUN: %annotate -O2 -c %s -o %t.o
// COUNT: {{^}}4095{{$}}
struct Largest {
  float *pointers[4095];
};
// CHECK: large(
// CHECK-NEXT: parameter 0: write
// CHECK: parameter 0 at byte 32752: write
__global__ void large(const __grid_constant__ Largest operands, int which) {
  operands.pointers[which][threadIdx.x] = 1;
}
int main() {}
