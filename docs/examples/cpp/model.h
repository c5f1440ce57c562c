// SPDX-License-Identifier: Apache-2.0
/// \file
/// A small transformer language model, and one training step of it (forward, backward, AdamW) as kernels on one
/// stream, matrix products by cuBLAS or as kernels of the example's own.
#pragma once

#include "memory.h"

#include <cstddef>
#include <memory>

struct Shape {
  int batch = 8;
  int length = 512; ///< words a text
  int width = 1024;
  int heads = 16;
  int layers = 8;
  int words = 8192; ///< vocabulary
  int frozen = 0;   ///< layers, the first ones, that keep their weights, as the embedding does then

  int rows() const { return batch * length; }
  int headWidth() const { return width / heads; }
};

/// The pointers are device addresses that stay the same; what is at them, anybody may touch between steps.
class Model {
public:
  virtual ~Model() = default;

  /// Enqueues one whole training step. Can be called eagerly and under capture, any number of times.
  virtual void record(cudaStream_t stream) = 0;

  virtual int *tokens() const = 0;  ///< rows() words to read
  virtual int *targets() const = 0; ///< the word that follows each
  virtual float *loss() const = 0;  ///< of the last step
};

/// Who multiplies matrices.
enum class Matmul { Cublas, Source };

std::unique_ptr<Model> makeTransformer(const Shape &shape, Matmul matmul, Memory &memory, cudaStream_t stream);
