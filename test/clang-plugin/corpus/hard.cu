// SPDX-License-Identifier: Apache-2.0
/// \file
/// Small kernels, each with one thing that is hard to see through.
#include <cstdint>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void axpy(int n, float a, const float *x, float *y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = a * x[i] + y[i];
}

__global__ void copyStrided(int n, const float *__restrict__ x, float *__restrict__ y, float *unused) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = x[i];
}

__global__ void multiply(int m, int n, int k, const float *a, const float *b, float *c) {
  __shared__ float tileA[16][16], tileB[16][16];
  const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
  float sum = 0;
  for (int tile = 0; tile < k; tile += 16) {
    tileA[threadIdx.y][threadIdx.x] = row < m && tile + threadIdx.x < k ? a[row * k + tile + threadIdx.x] : 0;
    tileB[threadIdx.y][threadIdx.x] = column < n && tile + threadIdx.y < k ? b[(tile + threadIdx.y) * n + column] : 0;
    __syncthreads();
    for (int i = 0; i < 16; ++i)
      sum += tileA[threadIdx.y][i] * tileB[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n)
    c[row * n + column] = sum;
}

__global__ void sumAtomically(const float *in, float *out, int n) {
  __shared__ float parts[256];
  const int i = blockIdx.x * 256 + threadIdx.x;
  parts[threadIdx.x] = i < n ? in[i] : 0;
  __syncthreads();
  for (int half = 128; half; half >>= 1) {
    if (threadIdx.x < half)
      parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0)
    atomicAdd(out, parts[0]);
}

__global__ void scatter(const int *places, const float *values, float *to, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    to[places[i]] = values[i];
}

struct Pointers {
  const float *a;
  float *b;
  int n;
  struct {
    float *c;
    float *d[2];
  } inner;
};
__global__ void structFields(Pointers p) {
  const int i = threadIdx.x;
  if (i < p.n) {
    p.b[i] = p.a[i];
    p.inner.d[1][i] += 1;
  }
}
__global__ void structIndexed(Pointers p, int which) {
  p.inner.d[which][threadIdx.x] = p.a[0];
}
__device__ __noinline__ void storeTo(float *p, float v) {
  p[threadIdx.x] = v;
}
__device__ __noinline__ float loadFrom(const float *p) {
  return p[threadIdx.x];
}
__device__ __noinline__ void copyFields(const Pointers *p) {
  p->b[threadIdx.x] = p->a[threadIdx.x];
}
__global__ void throughFunctions(const float *x, float *y) {
  storeTo(y, loadFrom(x));
}
__global__ void structThroughFunction(Pointers p) {
  copyFields(&p);
}

struct Node {
  Node *next;
  float value;
};
__device__ Node *head;
__global__ void push(Node *node, Node **table, float *out) {
  node->next = head;
  head = node;
  table[0] = node;
  out[0] = 1;
}
__global__ void readList(const Node *first, float *out) {
  float sum = 0;
  for (const Node *node = first; node; node = node->next)
    sum += node->value;
  *out = sum;
}
__device__ int climb(int *p, int depth) {
  if (depth == 0)
    return *p;
  p[depth] = depth;
  return climb(p + 1, depth - 1);
}
__global__ void recursive(int *p, int *out) {
  *out = climb(p, threadIdx.x);
}
__global__ void oneOfTwo(float *a, float *b, const float *c, int which) {
  float *const to = which ? a : b;
  to[threadIdx.x] = c[threadIdx.x];
}
__global__ void addressAsInteger(uint64_t address, float *out) {
  out[0] = *reinterpret_cast<float *>(address);
}
__global__ void loadByText(const float *x, float *y) {
  float v;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(v) : "l"(x));
  y[0] = v;
}
__global__ void vectors(const float4 *x, float4 *y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = __ldg(x + i);
}
__global__ void storesAddress(const float *x, const float **place) {
  *place = x;
}
__global__ void prints(const float *x) {
  printf("%f\n", x[0]);
}
template <class T, int N> __global__ void addOne(T *x) {
  for (int i = 0; i < N; ++i)
    x[i] += T(1);
}
template __global__ void addOne<double, 4>(double *);
__global__ void halves(__half2 *sum, const __half2 *in, __nv_bfloat162 *others) {
  atomicAdd(sum, __ldcg(in));
  atomicAdd(others, __float2bfloat162_rn(1));
}
__global__ void swapBuffers(float *a, float *b, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    a[threadIdx.x] = b[threadIdx.x + 1];
    float *const other = a;
    a = b;
    b = other;
  }
}
__global__ void transposed(const float *in, float *out, int n) {
  __shared__ float tile[32][33];
  const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  if (x < n && y < n)
    tile[threadIdx.y][threadIdx.x] = in[y * n + x];
  __syncthreads();
  const int column = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;
  if (row < n && column < n)
    out[row * n + column] = tile[threadIdx.x][threadIdx.y];
}
__global__ void embedded(const int *tokens, const float *table, float *out, int width) {
  const float *const row = table + size_t(tokens[blockIdx.x]) * width;
  for (int i = threadIdx.x; i < width; i += blockDim.x)
    out[size_t(blockIdx.x) * width + i] = row[i];
}
__global__ void masked(float *values, const unsigned char *mask, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && mask[i])
    values[i] = 0;
}

namespace {
__global__ void hidden(float *x) {
  x[0] = 1;
}
} // namespace
static __global__ void internal(float *x) {
  x[0] = 1;
}
void launch() {
  hidden<<<1, 1>>>(nullptr);
  internal<<<1, 1>>>(nullptr);
}
