// SPDX-License-Identifier: Apache-2.0
// The ranges of one launch: 4 blocks of 256 threads.
// RUN: %accesses -O0 %s | %print --launch 'grid=4 block=256 0=1000' > %t.O0 && FileCheck %s < %t.O0
// RUN: %accesses -O2 %s | %print --launch 'grid=4 block=256 0=1000' > %t.O2 && FileCheck %s < %t.O2
//
// A negative count: nothing at all.
// RUN: %accesses -O2 %s | %print --launch 'grid=4 block=256 0=-5' | FileCheck --check-prefix=NEGATIVE %s
//
// So large a count that the index would wrap: not known.
// RUN: %accesses -O2 %s | %print --launch 'grid=2147483647 block=1024 0=2147483647' \
// RUN:   | FileCheck --check-prefix=WRAPS %s

// CHECK-LABEL: {{^}}guarded(
// CHECK-NEXT:  parameter 1: read [0, 4000)
// NEGATIVE-LABEL: {{^}}guarded(
// NEGATIVE-NEXT:  parameter 1: read [0, -20)
// WRAPS-LABEL: {{^}}guarded(
// WRAPS-NEXT:  parameter 1: read [?, ?)
__global__ void guarded(int count, const float *in, float *sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    atomicAdd(sum, in[i]);
}

// More elements than threads: the threads are the limit.
// CHECK-LABEL: {{^}}fewThreads(
// CHECK-NEXT:  parameter 1: read [0, 2048)
__global__ void fewThreads(int count, const short *in, float *sum) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 100 * count)
    atomicAdd(sum, in[i]);
}

// CHECK-LABEL: {{^}}strideOfGrid(
// CHECK-NEXT:  parameter 1: read [0, 8000)
__global__ void strideOfGrid(int count, const double *in, double *sum) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    atomicAdd(sum, in[i]);
}

// CHECK-LABEL: {{^}}part(
// CHECK-NEXT:  parameter 1: read [400, 4400)
__global__ void part(int count, const float *in, float *sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    atomicAdd(sum, in[i + 100]);
}

// A stencil looks to both sides.
// CHECK-LABEL: {{^}}stencil(
// CHECK-NEXT:  parameter 1: read [-4, 4004)
__global__ void stencil(int count, const float *in, float *sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    atomicAdd(sum, in[i - 1] + in[i + 1]);
}

// One block a row.
// CHECK-LABEL: {{^}}rows(
// CHECK-NEXT:  parameter 1: read [0, 16000)
__global__ void rows(int width, const float *in, float *sum) {
  const float *const row = in + size_t(blockIdx.x) * width;
  for (int column = threadIdx.x; column < width; column += blockDim.x)
    atomicAdd(sum, row[column]);
}

// A loop of each thread alone.
// CHECK-LABEL: {{^}}each(
// CHECK-NEXT:  parameter 1: read [0, 4000)
__global__ void each(int count, const float *in, float *sum) {
  float total = 0;
  for (int i = 0; i < count; ++i)
    total += in[i];
  *sum = total;
}

// Four elements at once.
// CHECK-LABEL: {{^}}vectors(
// CHECK-NEXT:  parameter 1: read [0, 4000)
__global__ void vectors(int count, const float4 *in, float *sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count / 4)
    atomicAdd(sum, in[i].x + in[i].w);
}

// An index out of memory may be any.
// CHECK-LABEL: {{^}}gathered(
// CHECK-NEXT:  parameter 1: read [0, 4000)
// CHECK-NEXT:  parameter 2: read [-8589934592, 8589934592)
__global__ void gathered(int count, const int *places, const float *in, float *sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    atomicAdd(sum, in[places[i]]);
}

struct Slice {
  const float *in;
  int begin, count;
};
// A scalar inside a struct; the launch above does not have it.
// CHECK-LABEL: {{^}}slice(
// CHECK-NEXT:  parameter 0: read [?, ?)
__global__ void slice(Slice slice, float *sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < slice.count)
    atomicAdd(sum, slice.in[slice.begin + i]);
}
