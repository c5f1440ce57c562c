// SPDX-License-Identifier: Apache-2.0
// RUN: %accesses -O0 %s | %print > %t.O0 && FileCheck %s < %t.O0
// RUN: %accesses -O2 %s | %print > %t.O2 && FileCheck %s < %t.O2

#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

// CHECK-LABEL: {{^}}cacheOperators(
// CHECK-NEXT:  parameter 0: read [0, 4)
// CHECK-NEXT:  parameter 1: read [0, 16)
// CHECK-NEXT:  parameter 2: read [0, 8)
// CHECK-NEXT:  parameter 3: write [0, 4) overwrites [0, 4)
// CHECK-NEXT:  parameter 4: write [0, 16) overwrites [0, 16)
__global__ void cacheOperators(const __half2 *a, const int *b, const double *c, __half2 *d, float4 *e) {
  int4 four;
  asm("ld.global.cs.v4.s32 {%0, %1, %2, %3}, [%4];" : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w) : "l"(b));
  double wide;
  asm volatile("ld.global.cv.f64 %0, [%1];" : "=d"(wide) : "l"(c) : "memory");
  __stcg(d, __hadd2(__ldcg(a), __float2half2_rn(static_cast<float>(wide))));
  asm volatile("st.global.wt.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(e), "f"(1.0F * four.x), "f"(2.0F * four.y),
               "f"(3.0F * four.z), "f"(4.0F * four.w)
               : "memory");
}

// CHECK-LABEL: {{^}}readOnlyLoads(
// CHECK-NEXT:  parameter 0: read [0, 4)
// CHECK-NEXT:  parameter 1: read [0, 4)
// CHECK-NEXT:  parameter 2: write
__global__ void readOnlyLoads(const float *a, const __half2 *b, __half2 *out) {
  *out = __hadd2(__ldg(b), __float2half2_rn(__ldg(a)));
}

// CHECK-LABEL: {{^}}halfAtomics(
// CHECK-NEXT:  parameter 0: readwrite {{.*}}atomic
// CHECK-NEXT:  parameter 1: readwrite {{.*}}atomic
// CHECK-NEXT:  parameter 2: readwrite {{.*}}atomic
// CHECK-NEXT:  parameter 3: read
__global__ void halfAtomics(__half2 *pairs, __half *halves, __nv_bfloat162 *bfloats, const __half2 *in) {
  atomicAdd(pairs, *in);
  atomicAdd(halves, __low2half(*in));
  atomicAdd(bfloats, __float2bfloat162_rn(1.0F));
}

// CHECK-LABEL: {{^}}atomicRef(
// CHECK-NEXT:  parameter 0: readwrite {{.*}}atomic
// CHECK-NEXT:  parameter 1: {{read|readwrite}} {{.*}}
__global__ void atomicRef(int *counter, int *flag) {
  cuda::atomic_ref<int, cuda::thread_scope_device> reference(*counter);
  reference.fetch_add(1, cuda::memory_order_relaxed);
  cuda::atomic_ref<int, cuda::thread_scope_device>(*flag).load(cuda::memory_order_acquire);
}

// CHECK-LABEL: {{^}}asyncCopy(
// CHECK-NEXT:  parameter 0: read
// CHECK-NEXT:  parameter 1: write
__global__ void asyncCopy(const float4 *in, float4 *out) {
  __shared__ float4 tile[32];
  __pipeline_memcpy_async(&tile[threadIdx.x], &in[threadIdx.x], sizeof(float4));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  out[threadIdx.x] = tile[threadIdx.x];
}

// Text of several statements, with registers of its own, labels and comments.
// CHECK-LABEL: {{^}}severalStatements(
// CHECK-NEXT:  parameter 0: read{{$}}
// CHECK-NEXT:  parameter 1: write{{$}}
// CHECK-NEXT:  parameter 2: none{{$}}
__global__ void severalStatements(const float *in, float *out, const float *fetched, int offset) {
  float value;
  asm volatile("{\n\t"
               ".reg .u64 place; // ld is next\n\t"
               "add.u64 place, %1, %2;\n\t"
               "NEXT: ld.global.f32 %0, [place];\n\t"
               "}"
               : "=f"(value)
               : "l"(in), "l"(static_cast<long long>(offset)));
  asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p st.global.f32 [%0], %1; }" ::"l"(out), "f"(value), "r"(offset)
               : "memory");
  asm volatile("prefetch.global.L2 [%0];" ::"l"(fetched));
}

// An address that comes out of the text again.
// CHECK-LABEL: {{^}}convertedAddress(
// CHECK-NEXT:  parameter 0: write{{$}}
__global__ void convertedAddress(float *out) {
  unsigned long long global;
  asm("cvta.to.global.u64 %0, %1;" : "=l"(global) : "l"(out));
  asm volatile("st.global.f32 [%0], %1;" ::"l"(global), "f"(1.0F) : "memory");
}

// CHECK-LABEL: {{^}}storedByText(
// CHECK-NEXT:  parameter 0: readwrite escapes
// CHECK-NEXT:  parameter 1: write
__global__ void storedByText(float *values, float **place) {
  asm volatile("st.global.u64 [%0], %1;" ::"l"(place), "l"(values) : "memory");
}

// CHECK-LABEL: {{^}}notUnderstood(
// CHECK-NEXT:  parameter 0: readwrite unresolved
__global__ void notUnderstood(float *values) {
  asm volatile("frobnicate.global.f32 [%0];" ::"l"(values) : "memory");
}

// Threads that leave before the store: nothing is overwritten for certain.
// CHECK-LABEL: {{^}}leaves(
// CHECK-NEXT:  parameter 0: write [0, 4){{$}}
__global__ void leaves(float *out, int which) {
  if (which)
    asm volatile("exit;");
  *out = 1;
}
