// SPDX-License-Identifier: Apache-2.0
/// \file
/// The transformer example's matrix products, all in row-major order: by cuBLAS, or by a kernel of its own.
#pragma once

#include "kernels.cuh"
#include "memory.h"
#include "model.h"

#include <cublas_v2.h>

#include <memory>
#include <string>

class Products {
public:
  struct Matrix {
    const float *data;
    int stride; ///< elements from one row to the next
    bool transposed = false;
    long long batchStride = 0; ///< elements from one matrix of a batch to the next
  };

  /// Of one product: overwrite c with it.
  struct Options {
    float alpha = 1;
    bool adds = false; ///< to what is in c, instead of overwriting it
    int count = 1;     ///< of matrices in a batch
    long long cBatchStride = 0;
  };

  virtual ~Products() = default;
  /// From here on.
  virtual void use(cudaStream_t stream) = 0;
  /// c[m, n] = alpha * a[m, k] * b[k, n] (+ c), `count` times.
  virtual void multiply(int m, int n, int k, Matrix a, Matrix b, float *c, int cStride, const Options &options) = 0;
};

/// TF32 with fp32 sums.
class CublasProducts : public Products {
public:
  CublasProducts(Memory &memory, cudaStream_t stream)
      : workspace_(memory, workspaceBytes / sizeof(float), "cublas workspace", stream) {
    checkBlas(cublasCreate(&handle_), "cublasCreate");
  }
  ~CublasProducts() override { cublasDestroy(handle_); }
  CublasProducts(const CublasProducts &) = delete;
  CublasProducts &operator=(const CublasProducts &) = delete;

  /// A workspace of our own: with cuBLAS's, a capture would hold memory-allocation nodes, and results might differ
  /// between runs. Setting the stream drops the workspace, hence both at once.
  void use(cudaStream_t stream) override {
    checkBlas(cublasSetStream(handle_, stream), "cublasSetStream");
    checkBlas(cublasSetWorkspace(handle_, workspace_.data(), workspaceBytes), "cublasSetWorkspace");
  }

  void multiply(int m, int n, int k, Matrix a, Matrix b, float *c, int cStride, const Options &options) override {
    const float beta = options.adds ? 1 : 0;
    // cuBLAS counts in columns, so it computes the transposed product of the swapped operands.
    checkBlas(cublasGemmStridedBatchedEx(handle_, operation(b), operation(a), n, m, k, &options.alpha, b.data,
                                         CUDA_R_32F, b.stride, b.batchStride, a.data, CUDA_R_32F, a.stride,
                                         a.batchStride, &beta, c, CUDA_R_32F, cStride, options.cBatchStride,
                                         options.count, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT),
              "cublasGemmStridedBatchedEx");
  }

private:
  static constexpr std::size_t workspaceBytes = std::size_t{32} << 20;

  static cublasOperation_t operation(const Matrix &matrix) { return matrix.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

  static void checkBlas(cublasStatus_t status, const char *what) {
    if (status != CUBLAS_STATUS_SUCCESS)
      fail(std::string(what) + ": " + cublasGetStatusString(status));
  }

  cublasHandle_t handle_ = nullptr;
  Tensor workspace_;
};

/// In fp32, far slower. Every kernel of the step is source then, which a compiler can look into.
class SourceProducts : public Products {
public:
  void use(cudaStream_t stream) override { stream_ = stream; }

  void multiply(int m, int n, int k, Matrix a, Matrix b, float *c, int cStride, const Options &options) override {
    const auto kernel = select(a.transposed, b.transposed, options.adds);
    const auto tiles = [](int elements) {
      return static_cast<unsigned>((elements + kernels::tile - 1) / kernels::tile);
    };
    kernel<<<dim3(tiles(n), tiles(m), options.count), dim3(kernels::laneCount, kernels::laneCount), 0, stream_>>>(
        {a.data, a.stride, a.batchStride}, {b.data, b.stride, b.batchStride}, {c, cStride, options.cBatchStride}, m, n,
        k, options.alpha);
    check(cudaGetLastError(), "multiply");
  }

private:
  using Kernel = void (*)(kernels::Matrix<const float>, kernels::Matrix<const float>, kernels::Matrix<float>, int, int,
                          int, float);

  template <bool transposedA, bool transposedB> static Kernel select(bool adds) {
    return adds ? kernels::multiply<transposedA, transposedB, true>
                : kernels::multiply<transposedA, transposedB, false>;
  }
  static Kernel select(bool transposedA, bool transposedB, bool adds) {
    if (transposedA)
      return transposedB ? select<true, true>(adds) : select<true, false>(adds);
    return transposedB ? select<false, true>(adds) : select<false, false>(adds);
  }

  cudaStream_t stream_ = nullptr;
};

inline std::unique_ptr<Products> makeProducts(Matmul matmul, Memory &memory, cudaStream_t stream) {
  if (matmul == Matmul::Source)
    return std::make_unique<SourceProducts>();
  return std::make_unique<CublasProducts>(memory, stream);
}
