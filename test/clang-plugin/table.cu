// SPDX-License-Identifier: Apache-2.0
// The table in the program: registered before main() and taken away after it. A program without PumpGraph links and
// runs all the same.
// RUN: mkdir -p %t.tmp
// RUN: env TMPDIR=%t.tmp %annotate -O2 -c %s -o %t.o
// RUN: llvm-readelf -S %t.o | FileCheck --check-prefix=SECTION %s
// RUN: %plain -O2 -I%include -c %S/Inputs/print_table.cpp -o %t.printer.o
// RUN: %plain %t.o %t.printer.o -o %t.with %cudalib && %t.with | FileCheck %s
// RUN: %plain %t.o -o %t.without %cudalib && %t.without | FileCheck --check-prefix=ALONE %s
//
// Nothing is left in the folder of temporary files.
// RUN: env TMPDIR=%t.tmp %accesses -O2 %s > %t.json
// RUN: find %t.tmp -type f | count 0
//
// The same at -O0, for two architectures, and with device code that is linked.
// RUN: %annotate -O0 -c %s -o %t.O0.o && %plain %t.O0.o %t.printer.o -o %t.O0 %cudalib && %t.O0 | FileCheck %s
// RUN: %annotate -O2 --cuda-gpu-arch=sm_80 -c %s -o %t.two.o
// RUN: %plain %t.two.o %t.printer.o -o %t.two %cudalib && %t.two | FileCheck %s
// RUN: %annotate -O2 -fgpu-rdc -c %s -o %t.rdc.o
// RUN: llvm-readelf -S %t.rdc.o | FileCheck --check-prefix=SECTION %s

// SECTION: pumpgraph_access

#include <cstdio>

// CHECK: table version 1, 3 kernels
// CHECK-DAG: kernel _Z5scalePKfPfi stub known flags 4
// CHECK-DAG: kernel {{.*}}hidden{{.*}} stub known flags 4
// CHECK-DAG: kernel {{.*}}internal{{.*}} stub known flags 0
// CHECK-DAG:   slot 0+0 may 1 must 0 flags 0 begin={{.*}} end={{.*}} must_begin must_end
// CHECK-DAG:   slot 1+0 may 2 must 2 flags 0 begin={{.*}} end={{.*}} must_begin={{.*}} must_end={{.*}}
// CHECK-DAG:   slot 0+0 may 2 must 2 flags 0 begin=0:0:0:0 end=0:0:0:4 must_begin=0:0:0:0 must_end=0:0:0:4
// CHECK-DAG:   slot 0+0 may 3 must 0 flags 2 begin=0:0:0:0 end=0:0:0:4 must_begin must_end
// CHECK: main runs
// CHECK: unregistered 3 kernels
// ALONE: main runs
__global__ void scale(const float *in, float *out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    out[i] = 2 * in[i];
}
namespace {
__global__ void hidden(float *out) {
  *out = 1;
}
} // namespace
static __global__ void internal(float *out) {
  atomicAdd(out, 1);
}

int main() {
  scale<<<1, 1>>>(nullptr, nullptr, 0);
  hidden<<<1, 1>>>(nullptr);
  internal<<<1, 1>>>(nullptr);
  std::printf("main runs\n");
}
