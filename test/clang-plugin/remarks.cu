// SPDX-License-Identifier: Apache-2.0
// Why a parameter is read and written, and where it escapes, for the author of the kernel.
// RUN: %annotate -O2 --cuda-device-only -S -o /dev/null -Rpass-analysis=pumpgraph %s 2>&1 | FileCheck %s
// RUN: %annotate -O0 --cuda-device-only -S -o /dev/null -Rpass-analysis=pumpgraph %s 2>&1 | FileCheck %s
//
// Nobody asked: nothing is said.
// RUN: %annotate -O2 --cuda-device-only -S -o /dev/null %s 2>&1 | count 0

// CHECK-DAG: remarks.cu:[[#@LINE+3]]:{{[0-9]+}}: remark: parameter 0 is read
// CHECK-DAG: remarks.cu:[[#@LINE+2]]:{{[0-9]+}}: remark: parameter 0 is written
__global__ void inPlace(float *values, const float *in) {
  values[threadIdx.x] += in[threadIdx.x];
}

struct Operands {
  float *a;
  float *b;
};
// CHECK-DAG: remarks.cu:[[#@LINE+2]]:{{[0-9]+}}: remark: parameter 0 at byte 8 is stored
__global__ void stores(Operands operands, float **place) {
  *place = operands.b;
}

// What is only read needs no reason.
// CHECK-NOT: parameter 1
