// SPDX-License-Identifier: Apache-2.0
// A source that does not compile, in the device compile or only in the host's: the compiler's own message, and nothing
// is left behind.
// RUN: mkdir -p %t.tmp
// RUN: not env TMPDIR=%t.tmp %annotate -O2 -c %s -o %t.o 2>&1 | FileCheck %s
// RUN: not env TMPDIR=%t.tmp %annotate -O2 -DHOST -c %s -o %t.o 2>&1 | FileCheck %s
// RUN: find %t.tmp -type f | count 0
__global__ void kernel(float *out) {
  *out = 1;
}
// CHECK: error: unknown type name 'Missing'
#if defined(HOST) && !defined(__CUDA_ARCH__)
Missing host;
#elif !defined(HOST)
Missing both;
#endif
