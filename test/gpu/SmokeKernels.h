// SPDX-License-Identifier: Apache-2.0
/// \file
/// Kernels of the GPU tests. Exact integer arithmetic, so that two runs agree in every bit or are wrong.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace pumpgraph::smoke {

/// out[i] = in[i] * 3 + weight[i % weights]
void forward(cudaStream_t stream, const std::uint32_t *in, const std::uint32_t *weight, std::uint32_t *out,
             std::size_t count, std::size_t weights);

/// gradIn[i] = gradOut[i] * 5 + activation[i]; the same as a dependent launch if `programmatic`.
void backward(cudaStream_t stream, const std::uint32_t *gradOut, const std::uint32_t *activation, std::uint32_t *gradIn,
              std::size_t count, bool programmatic = false);

/// weight[j] += sum of grad[i] over all i with i % weights == j
void update(cudaStream_t stream, std::uint32_t *weight, const std::uint32_t *grad, std::size_t count,
            std::size_t weights);

/// *loss = *loss * 31 + hash of in
void addLoss(cudaStream_t stream, const std::uint32_t *in, std::size_t count, std::uint32_t *loss);

/// ++words[i] for every `stride`-th word
void touchThinly(cudaStream_t stream, std::uint32_t *words, std::size_t count, std::size_t stride);

/// out[i] = sum over the table's `rows` pointers of table[r][i]
void sumTable(cudaStream_t stream, std::uint32_t *const *table, int rows, std::uint32_t *out, std::size_t count);

/// table[r] = the address `distance` + r * `stride` bytes after the table itself, for every row r below `rows`
void storeAddresses(cudaStream_t stream, std::uint32_t **table, std::ptrdiff_t distance, std::size_t stride, int rows);

/// A struct by value, its pointers inside; `scale` sits between them.
struct PackedArguments {
  const std::uint32_t *in;
  std::uint32_t scale;
  std::uint32_t count;
  std::uint32_t *out;
};
/// out[i] = in[i] * scale
void scalePacked(cudaStream_t stream, PackedArguments arguments);

} // namespace pumpgraph::smoke
