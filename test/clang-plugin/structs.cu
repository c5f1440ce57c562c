// SPDX-License-Identifier: Apache-2.0
// RUN: %accesses -O0 %s | %print > %t.O0 && FileCheck %s < %t.O0
// RUN: %accesses -O2 %s | %print > %t.O2 && FileCheck %s < %t.O2

struct Inner {
  float *out;
  float *pair[2];
};
struct Operands {
  const float *in;
  float *sum;
  int count;
  Inner inner;
};

// Every pointer in a struct has a mode of its own, used or not. The padding behind `count` is never read, so that
// `count` and what was left there are no address together.
//
// CHECK-LABEL: {{^}}fields(
// CHECK-NEXT:  parameter 0: read
// CHECK-NEXT:  parameter 0 at byte 8: readwrite
// CHECK-NEXT:  parameter 0 at byte 16: none{{$}}
// CHECK-NEXT:  parameter 0 at byte 24: none{{$}}
// CHECK-NEXT:  parameter 0 at byte 32: none{{$}}
// CHECK-NEXT:  parameter 0 at byte 40: write
__global__ void fields(Operands operands) {
  const int i = threadIdx.x;
  if (i < operands.count) {
    operands.sum[i] += operands.in[i];
    operands.inner.pair[1][i] = 1;
  }
}

// An index that is not known may name each.
// CHECK-LABEL: {{^}}anyOfPair(
// CHECK:       parameter 0 at byte 32: write{{$}}
// CHECK-NEXT:  parameter 0 at byte 40: write{{$}}
__global__ void anyOfPair(Operands operands, int which) {
  operands.inner.pair[which][threadIdx.x] = 1;
}

__device__ __noinline__ void addTo(const Operands &operands) {
  operands.inner.out[threadIdx.x] = operands.in[threadIdx.x];
}
__device__ __noinline__ void addToCopy(Operands operands) {
  operands.inner.out[threadIdx.x] = operands.in[threadIdx.x];
}
// CHECK-LABEL: {{^}}byReference(
// CHECK-NEXT:  parameter 0: read
// CHECK-NEXT:  parameter 0 at byte 8: none{{$}}
// CHECK-NEXT:  parameter 0 at byte 16: none{{$}}
// CHECK-NEXT:  parameter 0 at byte 24: write
__global__ void byReference(Operands operands) {
  addTo(operands);
}
// CHECK-LABEL: {{^}}byValue(
// CHECK-NEXT:  parameter 0: read
// CHECK-NEXT:  parameter 0 at byte 8: none{{$}}
// CHECK:       parameter 0 at byte 24: write
__global__ void byValue(Operands operands) {
  addToCopy(operands);
}

// A field that the kernel changes may hold the other pointer.
// CHECK-LABEL: {{^}}changed(
// CHECK-NEXT:  parameter 0: readwrite
// CHECK-NEXT:  parameter 0 at byte 8: write
__global__ void changed(Operands operands, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    operands.sum[i] = operands.in[i + 1];
    if (i == 3)
      operands.sum = const_cast<float *>(operands.in);
  }
}

union Either {
  float *pointer;
  unsigned long long bits;
};
// CHECK-LABEL: {{^}}inUnion(
// CHECK-NEXT:  parameter 0: write
__global__ void inUnion(Either either) {
  either.pointer[threadIdx.x] = 1;
}

struct Raw {
  alignas(8) char bytes[16];
};
// Pointers that no type tells of.
// CHECK-LABEL: {{^}}inBytes(
// CHECK-NEXT:  parameter 0: none{{$}}
// CHECK-NEXT:  parameter 0 at byte 8: write
__global__ void inBytes(Raw raw) {
  float *out;
  memcpy(&out, raw.bytes + 8, sizeof(out));
  out[threadIdx.x] = 1;
}

// What a struct's address is passed to may do anything with the pointers in it.
// CHECK-LABEL: {{^}}wholeStructStored({{.*}}
// CHECK-NEXT:  parameter 0: readwrite escapes
// CHECK-NEXT:  parameter 0 at byte 8: readwrite escapes
// CHECK:       parameter 1: write
__global__ void wholeStructStored(Operands operands, Operands *copy) {
  *copy = operands;
}

struct Numbers {
  unsigned low, high;
  long long both;
};
// A word that is read in full may be anything: two halves of an address, a number to store. One of which only half is
// read is no address.
// CHECK-LABEL: {{^}}halves(
// CHECK-NEXT:  parameter 1: write{{.*}}
// CHECK-NEXT: {{^}}lowHalf(
// CHECK-NEXT:  parameter 0: none{{$}}
// CHECK-NEXT:  parameter 1: write{{.*}}
__global__ void halves(Numbers numbers, long long *out) {
  out[0] = numbers.low;
  out[1] = numbers.high;
  out[2] = numbers.both;
}
__global__ void lowHalf(Numbers numbers, long long *out) {
  out[0] = numbers.low;
  out[2] = numbers.both;
}
// Which words an index that is not known reads is not known.
// CHECK-LABEL: {{^}}anyNumber(
// CHECK-NEXT:  parameter 2: write
__global__ void anyNumber(Raw raw, int which, char *out) {
  *out = raw.bytes[which];
}
