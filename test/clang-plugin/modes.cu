// SPDX-License-Identifier: Apache-2.0
// RUN: %accesses -O0 %s | %print > %t.O0 && FileCheck %s < %t.O0
// RUN: %accesses -O1 %s | %print > %t.O1 && FileCheck %s < %t.O1
// RUN: %accesses -O2 %s | %print > %t.O2 && FileCheck %s < %t.O2
// RUN: %accesses -O3 %s | %print > %t.O3 && FileCheck %s < %t.O3

#include <cuda_fp16.h>

// What is read is not written, and the other way round; a parameter that is not used has no access.
// CHECK-LABEL: {{^}}scaleInto(
// CHECK-NEXT:  parameter 1: read
// CHECK-NEXT:  parameter 2: write
// CHECK-NEXT:  parameter 3: none{{$}}
__global__ void scaleInto(int count, const float *in, float *out, float *spare) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    out[i] = 2 * in[i];
}

// CHECK-LABEL: {{^}}addInPlace(
// CHECK-NEXT:  parameter 0: readwrite
// CHECK-NEXT:  parameter 1: read
__global__ void addInPlace(float *sum, const float *addend) {
  sum[threadIdx.x] += addend[threadIdx.x];
}

// The mode is the pointer's use, not its type.
// CHECK-LABEL: {{^}}castAway(
// CHECK-NEXT:  parameter 0: write
__global__ void castAway(const float *constant) {
  const_cast<float *>(constant)[threadIdx.x] = 1;
}

// A pointer that is one of two: both are written. Neither is overwritten for certain.
// CHECK-LABEL: {{^}}chosen(
// CHECK-NEXT:  parameter 0: write{{$}}
// CHECK-NEXT:  parameter 1: write{{$}}
// CHECK-NEXT:  parameter 2: read
__global__ void chosen(float *a, float *b, const float *in, int which) {
  float *const out = which ? a : b;
  out[threadIdx.x] = in[threadIdx.x];
}

// A pointer that a loop exchanges with another.
// CHECK-LABEL: {{^}}exchanged(
// CHECK-NEXT:  parameter 0: readwrite
// CHECK-NEXT:  parameter 1: readwrite
__global__ void exchanged(float *a, float *b, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    a[threadIdx.x] = b[threadIdx.x + 1];
    float *const next = a;
    a = b;
    b = next;
  }
}

// CHECK-LABEL: {{^}}addUp(
// CHECK-NEXT:  parameter 0: read
// CHECK-NEXT:  parameter 1: readwrite {{.*}}atomic
__global__ void addUp(const float *in, float *sum) {
  atomicAdd(sum, in[threadIdx.x]);
}

// CHECK-LABEL: {{^}}exchangeAtomically(
// CHECK-NEXT:  parameter 0: readwrite {{.*}}atomic
__global__ void exchangeAtomically(int *lock) {
  atomicCAS(lock, 0, 1);
}

__device__ __noinline__ void store(float *to, float value) {
  to[threadIdx.x] = value;
}
__device__ __noinline__ float load(const float *from) {
  return from[threadIdx.x];
}
__device__ __noinline__ float *skip(float *pointer, int count) {
  return pointer + count;
}
// CHECK-LABEL: {{^}}throughFunctions(
// CHECK-NEXT:  parameter 0: read
// CHECK-NEXT:  parameter 1: write
// CHECK-NEXT:  parameter 2: write
__global__ void throughFunctions(const float *in, float *out, float *last) {
  store(out, load(in));
  *skip(last, 7) = 1;
}

__device__ __noinline__ int walkDown(int *place, int depth) {
  if (depth == 0)
    return *place;
  place[depth] = depth;
  return walkDown(place + 1, depth - 1) + *place;
}
// CHECK-LABEL: {{^}}recursive(
// CHECK-NEXT:  parameter 0: readwrite
// CHECK-NEXT:  parameter 1: write
__global__ void recursive(int *places, int *result) {
  *result = walkDown(places, threadIdx.x);
}

// CHECK-LABEL: {{^}}copied(
// CHECK-NEXT:  parameter 0: write
// CHECK-NEXT:  parameter 1: read
// CHECK-NEXT:  parameter 2: write
__global__ void copied(char *to, const char *from, char *zero, unsigned count) {
  memcpy(to, from, count);
  memset(zero, 0, count);
}

// Looking at an address is not using it.
// CHECK-LABEL: {{^}}aligned(
// CHECK-NEXT:  parameter 0: none{{$}}
// CHECK-NEXT:  parameter 1: write
__global__ void aligned(const char *address, unsigned *result) {
  *result = address != nullptr ? reinterpret_cast<uintptr_t>(address) % 16 : 17;
}

// Through an integer and back.
// CHECK-LABEL: {{^}}roundedUp(
// CHECK-NEXT:  parameter 0: write{{$}}
__global__ void roundedUp(char *address) {
  *reinterpret_cast<char *>((reinterpret_cast<uintptr_t>(address) + 15) & ~uintptr_t{15}) = 1;
}

// An array of pointers in local memory, indexed by what is not known.
// CHECK-LABEL: {{^}}localArray(
// CHECK-NEXT:  parameter 0: read{{$}}
// CHECK-NEXT:  parameter 1: read{{$}}
// CHECK-NEXT:  parameter 2: write
__global__ void localArray(const float *a, const float *b, float *out, int which) {
  const float *const both[2] = {a, b};
  out[threadIdx.x] = both[which & 1][threadIdx.x];
}

// CHECK-LABEL: {{^}}printed(
// CHECK-NEXT:  parameter 0: read
__global__ void printed(const float *value) {
  printf("%f at %p\n", *value, value);
}

template <class T, int Count> __global__ void increment(T *values) {
  for (int i = 0; i < Count; ++i)
    values[i] += T(1);
}
// CHECK-LABEL: {{^}}void increment<double, 4>(
// CHECK-NEXT:  parameter 0: readwrite [0, 32)
template __global__ void increment<double, 4>(double *);

template <class Operation> __global__ void apply(Operation operation) {
  operation(threadIdx.x);
}
namespace {
__global__ void hidden(float *out) {
  out[threadIdx.x] = 1;
}
} // namespace
static __global__ void internal(float *out) {
  out[threadIdx.x] = 1;
}
void launchAll(float *out, const float *in) {
  hidden<<<1, 1>>>(out);
  internal<<<1, 1>>>(out);
  apply<<<1, 1>>>([=] __device__(int i) { out[i] = in[i]; });
}
// Kernels that only this file can name, and a lambda's captures.
// CHECK-LABEL: {{^}}(anonymous namespace)::hidden(
// CHECK-NEXT:  parameter 0: write
// CHECK-LABEL: {{^}}internal(
// CHECK-NEXT:  parameter 0: write
// CHECK-LABEL: {{^}}void apply<
// CHECK-DAG:   parameter 0{{( at byte 8)?}}: write
// CHECK-DAG:   parameter 0{{( at byte 8)?}}: read
