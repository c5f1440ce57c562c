// SPDX-License-Identifier: Apache-2.0
// What holds on every architecture that the object has code for.
// RUN: %annotate -O2 -fgpu-rdc -c --cuda-host-only %s -o %t.host.o 2>&1 | FileCheck --check-prefix=ALONE %s
// RUN: %annotate -O2 --cuda-gpu-arch=sm_80 -c %s -o %t.o
// RUN: %plain -O2 -I%include -c %S/Inputs/print_table.cpp -o %t.printer.o
// RUN: %plain %t.o %t.printer.o -o %t.run %cudalib && %t.run | FileCheck %s
//
// The host compile alone has nothing to say, and says so.
// ALONE: warning: pumpgraph: 2 of 2 kernels are unknown: the device code was not compiled in the same run

struct Pair {
  int first, second;
};
// A word that one of them reads in full may be anything.
// CHECK: kernel _Z6halves4PairPi stub known
// CHECK-NEXT: slot 1+0 may 2 must 2
__global__ void halves(Pair pair, int *out) {
#if __CUDA_ARCH__ >= 900
  *out = pair.first;
#else
  *out = pair.first + pair.second;
#endif
}

// CHECK: kernel _Z7dependsPfS_
// CHECK-NEXT: slot 0+0 may 3 must 0
// CHECK-NEXT: slot 1+0 may 2 must 0
__global__ void depends(float *a, float *b) {
#if __CUDA_ARCH__ >= 900
  *a = 1;
  *b = 1;
#else
  if (*a > 1)
    *b = 1;
#endif
}

int main() {
  depends<<<1, 1>>>(nullptr, nullptr);
  halves<<<1, 1>>>({}, nullptr);
}
