// SPDX-License-Identifier: Apache-2.0
#include <factor.h>

#include <cstdio>
#include <cuda/std/concepts>

static_assert(cuda::std::integral<decltype(factor)>);

__global__ void scale(const float *in, float *out, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    out[i] = factor * in[i];
}
template <class T> __global__ void addOne(T *values) {
  values[threadIdx.x] += 1;
}
static __global__ void internal(float *out) {
  *out = 1;
}

int main() {
  scale<<<1, 1>>>(nullptr, nullptr, 0);
  addOne<<<1, 1>>>(static_cast<double *>(nullptr));
  internal<<<1, 1>>>(nullptr);
  std::printf("main runs\n");
}
