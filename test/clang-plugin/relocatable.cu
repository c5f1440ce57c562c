// SPDX-License-Identifier: Apache-2.0
// Device code of two sources, linked: each has a table of its own kernels. What a kernel calls in the other source may
// do anything.
// REQUIRES: nvlink
// RUN: %annotate -O2 -fgpu-rdc -c %s -o %t.one.o
// RUN: %annotate -O2 -fgpu-rdc -DTHE_OTHER -c %s -o %t.other.o
// RUN: %plain -I%include -c %S/Inputs/print_table.cpp -o %t.printer.o
// RUN: %plain -fgpu-rdc --offload-link %t.one.o %t.other.o %t.printer.o -o %t.linked %cudalib
// RUN: %t.linked | FileCheck %s

#include <cstdio>

// CHECK-DAG: kernel _Z5alonePf stub known flags 4{{$}}
// CHECK-DAG: kernel _Z5callsPf stub known flags 1{{$}}
// CHECK-DAG:   slot 0+0 may 3 must 0 flags 1 {{.*}}
// CHECK-DAG: kernel _Z9elsewherePKfPf stub known flags 4{{$}}
// CHECK: main runs
// CHECK-DAG: unregistered 1 kernels
// CHECK-DAG: unregistered 2 kernels
__device__ void put(float *out);
void launchElsewhere();

#ifdef THE_OTHER
__device__ void put(float *out) {
  *out = 2;
}
__global__ void elsewhere(const float *in, float *out) {
  *out = *in;
}
void launchElsewhere() {
  elsewhere<<<1, 1>>>(nullptr, nullptr);
}
#else
__global__ void alone(float *out) {
  *out = 1;
}
__global__ void calls(float *out) {
  put(out);
}
int main() {
  alone<<<1, 1>>>(nullptr);
  calls<<<1, 1>>>(nullptr);
  launchElsewhere();
  std::printf("main runs\n");
}
#endif
