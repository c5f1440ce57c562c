// SPDX-License-Identifier: Apache-2.0
// Which kernels are pure: by proof where threads have nothing to do with each other, by their author's word, and not
// against what the plugin sees.
// RUN: %accesses -O2 %s 2> %t.warnings | %print > %t.O2 && FileCheck %s < %t.O2
// RUN: FileCheck --check-prefix=WARNS %s < %t.warnings
// RUN: grep "warning: pumpgraph" %t.warnings | count 23
// RUN: %accesses -O0 %s 2> %t.warnings | %print > %t.O0 && FileCheck %s < %t.O0
// RUN: FileCheck --check-prefix=WARNS %s < %t.warnings
// RUN: grep "warning: pumpgraph" %t.warnings | count 23
//
// The table says it, with the flags of access_table.h, of what holds on every architecture. The text of the annotation
// is not part of the program.
// RUN: %annotate -O2 -DASSEMBLED --cuda-gpu-arch=sm_80 -c %s -o %t.o 2> %t.warnings
// RUN: %plain -O2 -I%include -c %S/Inputs/print_table.cpp -o %t.printer.o
// RUN: %plain %t.o %t.printer.o -o %t.run %cudalib && %t.run | FileCheck --check-prefix=TABLE %s
// RUN: %annotate -O2 --cuda-device-only -S -o - %s 2> %t.warnings | FileCheck --check-prefix=PTX %s
// PTX-NOT: pumpgraph.pure
//
// With lines where the compiler has them.
// RUN: %accesses -O2 -gline-tables-only %s 2>&1 | FileCheck --check-prefix=PLACE %s

#include <cassert>
#include <cstdio>
#include <cuda/atomic>
#include <cuda_fp16.h>

#define PURE __attribute__((annotate("pumpgraph.pure")))

__device__ int calls;
__device__ float state[32];
__constant__ float coefficients[4];
__constant__ const float fixedCoefficients[4] = {1, 2, 3, 4};
__device__ int moreCalls;
__device__ int *const table[] = {&calls, &moreCalls};

// Proved.

// CHECK: {{^}}gelu({{.*}}) (pure where slots lie apart)
// TABLE-DAG: kernel _Z4geluPfPKfi stub known flags 4
__global__ void gelu(float *out, const float *in, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    out[i] = 0.5F * in[i] * (1 + tanhf(0.797885F * (in[i] + 0.044715F * in[i] * in[i] * in[i])));
}

// CHECK: {{^}}halves({{.*}}) (pure where slots lie apart)
__global__ void halves(__half2 *out, const __half2 *a, const __half2 *b, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    out[i] = __hadd2(__ldg(a + i), b[i]);
}

// CHECK: {{^}}fours({{.*}}) (pure where slots lie apart)
__global__ void fours(float4 *out, const float4 *in, const int *rows) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 value = in[rows[i]];
  out[i] = {value.x * fixedCoefficients[0], value.y, value.z, value.w * fixedCoefficients[rows[i] & 3]};
}

// CHECK: {{^}}severalOfEach({{.*}}) (pure where slots lie apart)
__global__ void severalOfEach(float *out, const float *in) {
  const int first = 8 * (blockIdx.x * blockDim.x + threadIdx.x);
#pragma unroll 1
  for (int i = 0; i < 8; ++i)
    out[first + i] = 2 * in[first + i];
}

// CHECK: {{^}}plane({{.*}}) (pure where slots lie apart)
__global__ void plane(double *out, const double *in) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  out[y * (gridDim.x * blockDim.x) + x] = in[x] + in[y];
}

// All threads write the same.
// CHECK: {{^}}constant({{.*}}) (pure where slots lie apart)
__global__ void constant(float *out, const float *in) {
  *out = *in + 1;
}

// Not proved: threads may meet.

// CHECK: {{^}}last(float*){{$}}
// TABLE-DAG: kernel _Z4lastPf stub known flags 0
__global__ void last(float *out) {
  *out = threadIdx.x;
}

// CHECK: {{^}}rowsMeet(float*, int){{$}}
__global__ void rowsMeet(float *out, int pitch) {
  out[blockIdx.x * pitch + threadIdx.x] = blockIdx.x;
}

// CHECK: {{^}}otherAxis(float*){{$}}
__global__ void otherAxis(float *out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.y;
}

// CHECK: {{^}}overlapping(float*){{$}}
__global__ void overlapping(float *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = 1;
  out[i + 1] = 2;
}

// CHECK: {{^}}stepsTooShort(float*, int){{$}}
__global__ void stepsTooShort(float *out, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += blockDim.x)
    out[i] = i - threadIdx.x;
}

// CHECK: {{^}}fewerThanTheLoop(float*){{$}}
__global__ void fewerThanTheLoop(float *out) {
  const int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
#pragma unroll 1
  for (int i = 0; i < 8; ++i)
    out[first + i] = threadIdx.x;
}

// CHECK: {{^}}scatter({{.*}}*){{$}}
__global__ void scatter(float *out, const int *places) {
  out[places[threadIdx.x]] = threadIdx.x;
}

// Threads that differ in an index the kernel does not read may meet in what is read and written.
// CHECK: {{^}}inPlace({{.*}}*){{$}}
__global__ void inPlace(float *values, const float *in) {
  values[blockIdx.x * blockDim.x + threadIdx.x] += in[blockIdx.x * blockDim.x + threadIdx.x];
}

// CHECK: {{^}}reversed({{.*}}*){{$}}
__global__ void reversed(float *out, const float *in) {
  __shared__ float tile[64];
  tile[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

// CHECK: {{^}}neighbours({{.*}}*){{$}}
__global__ void neighbours(float *out, const float *in) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = __shfl_down_sync(~0U, in[i], 1);
}

// CHECK: {{^}}lane(unsigned int*){{$}}
__global__ void lane(unsigned *out) {
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  *out = lane;
}

// Of an address alone its alignment is the same wherever memory lies.
// CHECK: {{^}}address({{.*}}*){{$}}
__global__ void address(int *out, const float *a, const float *b) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = a < b;
}
// CHECK: {{^}}aligned({{.*}}) (pure where slots lie apart)
__global__ void aligned(int *out, const float *a) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = reinterpret_cast<unsigned long>(a) % 16 ? 1 : 2;
}

struct Operands {
  float *out;
  const float *in;
  int count;
};
// CHECK: {{^}}packed({{.*}}) (pure where slots lie apart)
__global__ void packed(Operands operands) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < operands.count)
    operands.out[i] = operands.in[i];
}
// CHECK: {{^}}asNumber(Operands){{$}}
__global__ void asNumber(Operands operands) {
  unsigned halves[2];
  memcpy(halves, &operands.out, sizeof halves);
  operands.out[blockIdx.x * blockDim.x + threadIdx.x] = halves[1] + operands.in[0];
}

// The host may set it between two replays, or a node of the graph.
// CHECK: {{^}}scaled({{.*}}){{$}}
__global__ void scaled(float *out, const float *in) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x] * coefficients[0];
}

// CHECK: {{^}}stamps(long long*){{$}}
__global__ void stamps(long long *out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = clock64();
}

// Said by the author: believed.

// CHECK: {{^}}softmax({{.*}}) (pure)
// TABLE-DAG: kernel _Z7softmaxPfPKfi stub known flags 2
PURE __global__ void softmax(float *out, const float *in, int pitch) {
  extern __shared__ float tile[];
  tile[threadIdx.x] = expf(in[blockIdx.x * pitch + threadIdx.x]);
  __syncthreads();
  float sum = 0;
  for (unsigned i = 0; i < blockDim.x; ++i)
    sum += tile[i];
  for (int offset = 16; offset; offset /= 2)
    sum += __shfl_xor_sync(~0U, sum, offset);
  out[blockIdx.x * pitch + threadIdx.x] = tile[threadIdx.x] / sum;
}

// CHECK: {{^}}updates({{.*}}) (pure)
PURE __global__ void updates(float *weights, const float *gradients) {
  weights[threadIdx.x] -= gradients[threadIdx.x];
}

template <typename Value> PURE __global__ void templated(Value *out, int pitch) {
  out[blockIdx.x * pitch + threadIdx.x] = pitch;
}
// CHECK: {{^}}void templated<int>({{.*}}) (pure)
template __global__ void templated<int>(int *, int);

// Another annotation is none of ours.
// CHECK: {{^}}otherwise({{.*}}*){{$}}
__attribute__((annotate("pumpgraph.purely"))) __global__ void otherwise(float *out) {
  *out = threadIdx.x;
}

// Said, and not so: a warning, and no flag.

// A second run counts twice.
// CHECK: {{^}}counts(float*) (other memory too){{$}}
// WARNS-DAG: pumpgraph: the kernel 'counts(float*)' is annotated as pure and not taken for it: it uses the variable
// TABLE-DAG: kernel _Z6countsPf stub known flags 1
// PLACE-DAG: the kernel 'counts(float*)' {{.*}} ({{.*}}purity.cu:[[#@LINE+3]])
PURE __global__ void counts(float *out) {
  if (threadIdx.x == 0)
    ++calls;
  out[threadIdx.x] = 1;
}

// A second run adds up in another order.
// WARNS-DAG: 'sums(float*, float const*)' {{.*}}: it has an atomic operation
// CHECK: {{^}}sums({{.*}}*){{$}}
PURE __global__ void sums(float *out, const float *in) {
  atomicAdd(out, in[threadIdx.x]);
}

// WARNS-DAG: 'sumsOnChip(float*, float const*)' {{.*}}: it has an atomic operation
// CHECK: {{^}}sumsOnChip({{.*}}*){{$}}
PURE __global__ void sumsOnChip(float *out, const float *in) {
  __shared__ float sum;
  sum = 0;
  __syncthreads();
  atomicAdd(&sum, in[threadIdx.x]);
  __syncthreads();
  out[blockIdx.x] = sum;
}

// WARNS-DAG: 'flagged(int*, int*)' {{.*}}: it has an access that other threads take part in
// CHECK: {{^}}flagged(int*, int*){{$}}
PURE __global__ void flagged(int *out, int *flag) {
  *out = cuda::atomic_ref<int, cuda::thread_scope_device>(*flag).load(cuda::memory_order_acquire);
}

// WARNS-DAG: 'reduces(float*)' {{.*}}: it has an atomic operation
// CHECK: {{^}}reduces(float*){{$}}
PURE __global__ void reduces(float *out) {
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(out), "f"(1.0F) : "memory");
}

// WARNS-DAG: 'polls(int*, int volatile*)' {{.*}}: it has a volatile access
// CHECK: {{^}}polls(int*, int volatile*){{$}}
PURE __global__ void polls(int *out, volatile int *flag) {
  out[threadIdx.x] = *flag;
}

// WARNS-DAG: 'times(long long*)' {{.*}}: it reads %clock64, which the launch does not decide
// CHECK: {{^}}times(long long*){{$}}
PURE __global__ void times(long long *out) {
  out[threadIdx.x] = clock64();
}

// WARNS-DAG: 'timesByText(unsigned long*)' {{.*}}: it reads %globaltimer, which the launch does not decide
PURE __global__ void timesByText(unsigned long *out) {
  unsigned long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  *out = now;
}

// WARNS-DAG: 'whereabouts(unsigned int*)' {{.*}}: it reads %smid, which the launch does not decide
PURE __global__ void whereabouts(unsigned *out) {
  out[blockIdx.x] = __nvvm_read_ptx_sreg_smid();
}

// WARNS-DAG: 'together(unsigned int*)' {{.*}}: it uses activemask, whose effect the launch does not decide
PURE __global__ void together(unsigned *out) {
  out[threadIdx.x] = __activemask();
}

// WARNS-DAG: 'sleeps(float*)' {{.*}}: it uses nanosleep, whose effect the launch does not decide
PURE __global__ void sleeps(float *out) {
  __nanosleep(100);
  *out = 1;
}

// WARNS-DAG: 'says(float*)' {{.*}}: it prints
// CHECK: {{^}}says(float*){{$}}
PURE __global__ void says(float *out) {
  printf("%f\n", *out);
}

// WARNS-DAG: 'asserts(float*)' {{.*}}: it may stop the program
PURE __global__ void asserts(float *out) {
  assert(blockDim.x == 32);
  *out = 1;
}

// WARNS-DAG: 'traps(float*)' {{.*}}: it may stop the program
PURE __global__ void traps(float *out) {
  if (blockDim.x != 32)
    __trap();
  *out = 1;
}

// WARNS-DAG: 'allocates(void**)' {{.*}}: it allocates or frees memory
PURE __global__ void allocates(void **out) {
  out[threadIdx.x] = malloc(4);
}

// WARNS-DAG: 'calling(float*, float (*)(float))' {{.*}}: it calls a function through a pointer
PURE __global__ void calling(float *out, float (*function)(float)) {
  *out = function(1);
}

// WARNS-DAG: 'remembers(float*)' {{.*}}: it uses the variable 'state', which lasts from one launch to the next
PURE __global__ void remembers(float *out) {
  out[threadIdx.x] = state[threadIdx.x];
}

// WARNS-DAG: 'isSet(float*)' {{.*}}: it uses the variable 'coefficients', which lasts
PURE __global__ void isSet(float *out) {
  out[threadIdx.x] = coefficients[threadIdx.x & 3];
}

// WARNS-DAG: 'bySecondHand(float*)' {{.*}}: it uses the variable '{{.*}}table'
PURE __global__ void bySecondHand(float *out) {
  *table[threadIdx.x] = 1;
  *out = 1;
}

// WARNS-DAG: 'follows(float**)' {{.*}}: it follows addresses in the memory that parameter 0 leads to
// CHECK: {{^}}follows(float**){{$}}
PURE __global__ void follows(float **places) {
  *places[threadIdx.x] = 1;
}

// WARNS-DAG: 'leaks(float*, float**)' {{.*}}: it passes the address in parameter 0 where it cannot be followed
PURE __global__ void leaks(float *values, float **place) {
  *place = values;
}

#ifndef ASSEMBLED // ptxas does not understand it either
// WARNS-DAG: 'unknownText(float*)' {{.*}}: it has inline assembly that is not understood
PURE __global__ void unknownText(float *out) {
  asm volatile("frobnicate.f32 %0;" ::"f"(*out));
}
#endif

// WARNS-DAG: 'fetches(unsigned long long, float*)' {{.*}}: it has inline assembly that is not understood
PURE __global__ void fetches(unsigned long long texture, float *out) {
  float a, b, c, d;
  asm volatile("tex.1d.v4.f32.s32 {%0, %1, %2, %3}, [%4, {%5}];"
               : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
               : "l"(texture), "r"(0));
  *out = a + b + c + d;
}

int main() {
  gelu<<<1, 1>>>(nullptr, nullptr, 0);
  last<<<1, 1>>>(nullptr);
  softmax<<<1, 1>>>(nullptr, nullptr, 0);
  counts<<<1, 1>>>(nullptr);
}
