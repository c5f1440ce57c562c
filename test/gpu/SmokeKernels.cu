// SPDX-License-Identifier: Apache-2.0
#include "test/gpu/SmokeKernels.h"

namespace pumpgraph::smoke {
namespace {

constexpr int threads = 256, blocks = 1024;

__device__ std::size_t first() {
  return blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
}
__device__ std::size_t step() {
  return gridDim.x * static_cast<std::size_t>(blockDim.x);
}

__global__ void forwardKernel(const std::uint32_t *in, const std::uint32_t *weight, std::uint32_t *out,
                              std::size_t count, std::size_t weights) {
  for (std::size_t i = first(); i < count; i += step())
    out[i] = in[i] * 3 + weight[i % weights];
}

__global__ void backwardKernel(const std::uint32_t *gradOut, const std::uint32_t *activation, std::uint32_t *gradIn,
                               std::size_t count) {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
  for (std::size_t i = first(); i < count; i += step())
    gradIn[i] = gradOut[i] * 5 + activation[i];
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

__global__ void updateKernel(std::uint32_t *weight, const std::uint32_t *grad, std::size_t count, std::size_t weights) {
  for (std::size_t j = first(); j < weights; j += step()) {
    std::uint32_t sum = 0;
    for (std::size_t i = j; i < count; i += weights)
      sum += grad[i];
    weight[j] += sum;
  }
}

__global__ void hashKernel(const std::uint32_t *in, std::size_t count, std::uint32_t *loss) {
  std::uint32_t sum = 0;
  for (std::size_t i = first(); i < count; i += step())
    sum += in[i] * static_cast<std::uint32_t>(2 * i + 1);
  atomicAdd(loss, sum); // wraps, so the order does not matter
}

__global__ void touchThinlyKernel(std::uint32_t *words, std::size_t count, std::size_t stride) {
  for (std::size_t i = first() * stride; i < count; i += step() * stride)
    ++words[i];
}

__global__ void sumTableKernel(std::uint32_t *const *table, int rows, std::uint32_t *out, std::size_t count) {
  for (std::size_t i = first(); i < count; i += step()) {
    std::uint32_t sum = 0;
    for (int row = 0; row < rows; ++row)
      sum += table[row][i];
    out[i] = sum;
  }
}

__global__ void storeAddressesKernel(std::uint32_t **table, std::ptrdiff_t distance, std::size_t stride, int rows) {
  for (int row = static_cast<int>(first()); row < rows; row += static_cast<int>(step()))
    table[row] = reinterpret_cast<std::uint32_t *>(reinterpret_cast<char *>(table) + distance + row * stride);
}

__global__ void scalePackedKernel(PackedArguments arguments) {
  for (std::size_t i = first(); i < arguments.count; i += step())
    arguments.out[i] = arguments.in[i] * arguments.scale;
}

} // namespace

void forward(cudaStream_t stream, const std::uint32_t *in, const std::uint32_t *weight, std::uint32_t *out,
             std::size_t count, std::size_t weights) {
  forwardKernel<<<blocks, threads, 0, stream>>>(in, weight, out, count, weights);
}

void backward(cudaStream_t stream, const std::uint32_t *gradOut, const std::uint32_t *activation, std::uint32_t *gradIn,
              std::size_t count, bool programmatic) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = programmatic ? 1 : 0;
  cudaLaunchKernelEx(&config, backwardKernel, gradOut, activation, gradIn, count);
}

void update(cudaStream_t stream, std::uint32_t *weight, const std::uint32_t *grad, std::size_t count,
            std::size_t weights) {
  updateKernel<<<blocks, threads, 0, stream>>>(weight, grad, count, weights);
}

void addLoss(cudaStream_t stream, const std::uint32_t *in, std::size_t count, std::uint32_t *loss) {
  hashKernel<<<blocks, threads, 0, stream>>>(in, count, loss);
}

void touchThinly(cudaStream_t stream, std::uint32_t *words, std::size_t count, std::size_t stride) {
  touchThinlyKernel<<<blocks, threads, 0, stream>>>(words, count, stride);
}

void sumTable(cudaStream_t stream, std::uint32_t *const *table, int rows, std::uint32_t *out, std::size_t count) {
  sumTableKernel<<<blocks, threads, 0, stream>>>(table, rows, out, count);
}

void storeAddresses(cudaStream_t stream, std::uint32_t **table, std::ptrdiff_t distance, std::size_t stride, int rows) {
  storeAddressesKernel<<<1, threads, 0, stream>>>(table, distance, stride, rows);
}

void scalePacked(cudaStream_t stream, PackedArguments arguments) {
  scalePackedKernel<<<blocks, threads, 0, stream>>>(arguments);
}

} // namespace pumpgraph::smoke
