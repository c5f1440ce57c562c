// SPDX-License-Identifier: Apache-2.0
// What one launch overwrites for certain: 4 blocks of 256 threads.
// RUN: %accesses -O0 %s | %print --launch 'grid=4 block=256 0=1000' > %t.O0 && FileCheck %s < %t.O0
// RUN: %accesses -O2 %s | %print --launch 'grid=4 block=256 0=1000' > %t.O2 && FileCheck %s < %t.O2
//
// More elements than there are threads.
// RUN: %accesses -O2 %s | %print --launch 'grid=4 block=64 0=1000' | FileCheck --check-prefix=FEW %s

// CHECK-LABEL: {{^}}filled(
// CHECK-NEXT:  parameter 1: write [0, 4000) overwrites [0, 4000)
// FEW-LABEL: {{^}}filled(
// FEW-NEXT:  parameter 1: write [0, 1024) overwrites [0, 1024)
__global__ void filled(int count, float *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    out[i] = 1;
}

// Threads that return early are no other.
// CHECK-LABEL: {{^}}early(
// CHECK-NEXT:  parameter 1: write [0, 4000) overwrites [0, 4000)
__global__ void early(int count, float *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count)
    return;
  out[i] = 1;
}

// CHECK-LABEL: {{^}}strideOfGrid(
// CHECK-NEXT:  parameter 1: write [0, 4000) overwrites [0, 4000)
// FEW-LABEL: {{^}}strideOfGrid(
// FEW-NEXT:  parameter 1: write [0, 4000) overwrites [0, 4000)
__global__ void strideOfGrid(int count, float *out) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    out[i] = 1;
}

// CHECK-LABEL: {{^}}rows(
// CHECK-NEXT:  parameter 1: write [0, 16000) overwrites [0, 16000)
__global__ void rows(int width, float *out) {
  for (int column = threadIdx.x; column < width; column += blockDim.x)
    out[size_t(blockIdx.x) * width + column] = 1;
}

// One thread of each block.
// CHECK-LABEL: {{^}}onePerBlock(
// CHECK-NEXT:  parameter 1: write [0, 16) overwrites [0, 16)
__global__ void onePerBlock(int, float *out) {
  if (threadIdx.x == 0)
    out[blockIdx.x] = 1;
}

// A tile in two dimensions; the launch above has one row of threads only, and 16 columns are asked for.
// CHECK-LABEL: {{^}}columns(
// CHECK-NEXT:  parameter 1: write {{.*}} overwrites [0, 256)
__global__ void columns(int count, float *out) {
  const int column = blockIdx.x * 16 + threadIdx.x;
  if (threadIdx.x < 16 && column < count)
    out[column] = 1;
}

// Four elements of a thread that lie side by side.
// CHECK-LABEL: {{^}}sideBySide(
// CHECK-NEXT:  parameter 1: write [0, 16000) overwrites [0, 16000)
__global__ void sideBySide(int count, float *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    for (int part = 0; part < 4; ++part)
      out[4 * i + part] = 1;
}

// From here on nothing is overwritten for certain, or it cannot be told.

// Every second element.
// CHECK-LABEL: {{^}}gaps(
// CHECK-NEXT:  parameter 1: write [0, 7996){{$}}
__global__ void gaps(int count, float *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    out[2 * i] = 1;
}

// Overlaps, and does not reach what the stride leaves out: an offset of half an element.
// CHECK-LABEL: {{^}}otherStride(
// CHECK-NEXT:  parameter 1: write {{\[[^]]*\)}}{{$}}
__global__ void otherStride(int count, char *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    *reinterpret_cast<short *>(out + 6 * i) = 1;
}

// It depends on data.
// CHECK-LABEL: {{^}}sometimes(
// CHECK-NEXT:  parameter 1: write [0, 4000){{$}}
__global__ void sometimes(int count, float *out, const int *mask) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && mask[i])
    out[i] = 1;
}

// Some threads have left by a condition of their own.
// CHECK-LABEL: {{^}}someReturned(
// CHECK-NEXT:  parameter 1: write [0, 4000){{$}}
__global__ void someReturned(int count, float *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i % 32 == 7)
    return;
  if (i < count)
    out[i] = 1;
}

// A loop that may end before its time.
// CHECK-LABEL: {{^}}brokenOff(
// CHECK-NEXT:  parameter 1: write {{\[[^]]*\)}}{{$}}
__global__ void brokenOff(int count, float *out, const int *mask) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    out[i] = 1;
    if (mask[i])
      break;
  }
}

// Read before it is overwritten, by a neighbour perhaps.
// CHECK-LABEL: {{^}}shifted(
// CHECK-NEXT:  parameter 1: readwrite [0, 4004){{$}}
__global__ void shifted(int count, float *values) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    values[i] = values[i + 1];
}

// A program of which the kernel's end may not be reached as it seems.
// CHECK-LABEL: {{^}}trapped(
// CHECK-NEXT:  parameter 1: write [0, 4000){{$}}
__global__ void trapped(int count, float *out, const int *mask) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (mask[0])
    asm volatile("exit;");
  if (i < count)
    out[i] = 1;
}

// One of two.
// CHECK-LABEL: {{^}}either(
// CHECK-NEXT:  parameter 1: write{{$}}
// CHECK-NEXT:  parameter 2: write{{$}}
__global__ void either(int count, float *a, float *b) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    (count & 1 ? a : b)[i] = 1;
}
