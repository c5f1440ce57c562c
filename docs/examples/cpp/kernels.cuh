// SPDX-License-Identifier: Apache-2.0
/// \file
/// The transformer example's own CUDA kernels, all in single precision. None uses floating-point atomics, so every sum
/// is formed in the same order on every run.
#pragma once

#include <cuda_runtime.h>

namespace kernels {

inline constexpr int blockThreads = 256;
inline constexpr float normEpsilon = 1e-5F;

inline unsigned blocksFor(size_t count) {
  return static_cast<unsigned>((count + blockThreads - 1) / blockThreads);
}

struct Sum {
  static __device__ float start() { return 0.0F; }
  static __device__ float join(float a, float b) { return a + b; }
};

struct Max {
  static __device__ float start() { return -INFINITY; }
  static __device__ float join(float a, float b) { return fmaxf(a, b); }
};

/// The joined value of all threads of the block, in every thread.
template <typename Operation> __device__ float reduceBlock(float value) {
  __shared__ float ofWarp[32];
  __syncthreads(); // the last reduction's readers are done with ofWarp
  for (int lane = 16; lane > 0; lane /= 2)
    value = Operation::join(value, __shfl_xor_sync(~0U, value, lane));
  if (threadIdx.x % 32 == 0)
    ofWarp[threadIdx.x / 32] = value;
  __syncthreads();
  value = Operation::start();
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp)
    value = Operation::join(value, ofWarp[warp]);
  return value;
}

__device__ inline unsigned mixBits(unsigned bits) {
  bits ^= bits >> 16;
  bits *= 0x7feb352dU;
  bits ^= bits >> 15;
  bits *= 0x846ca68bU;
  return bits ^ (bits >> 16);
}

/// Normally distributed with the given deviation; the same seed gives the same values.
__global__ void fillNormal(float *values, size_t count, float deviation, unsigned seed) {
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i >= count)
    return;
  const unsigned bits = mixBits(static_cast<unsigned>(i) * 2 + mixBits(seed));
  const float radius = sqrtf(-2 * logf((static_cast<float>(bits >> 8) + 1) * 0x1p-24F));
  const float angle = 2 * static_cast<float>(M_PI) * (static_cast<float>(mixBits(bits + 1) >> 8) * 0x1p-24F);
  values[i] = deviation * radius * cosf(angle);
}

__global__ void fill(float *values, size_t count, float value) {
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i < count)
    values[i] = value;
}

/// out[i] = tokenRows[tokens[i]] + placeRows[i % length]; one block a row.
__global__ void embed(const int *tokens, const float *tokenRows, const float *placeRows, float *out, int length,
                      int width) {
  const size_t row = blockIdx.x;
  for (int column = threadIdx.x; column < width; column += blockDim.x)
    out[row * width + column] =
        tokenRows[size_t(tokens[row]) * width + column] + placeRows[row % length * width + column];
}

/// Gradient of the token rows: one block a word of the vocabulary, which looks for its occurrences. A thread adds up
/// columns of its own.
__global__ void embedTokensBackward(const int *tokens, const float *dOut, float *dTokenRows, int rows, int width) {
  const int word = blockIdx.x;
  float *sum = dTokenRows + size_t(word) * width;
  for (int column = threadIdx.x; column < width; column += blockDim.x)
    sum[column] = 0;
  for (int row = 0; row < rows; ++row) {
    if (tokens[row] != word)
      continue;
    for (int column = threadIdx.x; column < width; column += blockDim.x)
      sum[column] += dOut[size_t(row) * width + column];
  }
}

/// Gradient of the place rows: one block a place.
__global__ void embedPlacesBackward(const float *dOut, float *dPlaceRows, int rows, int length, int width) {
  for (int column = threadIdx.x; column < width; column += blockDim.x) {
    float sum = 0;
    for (int row = blockIdx.x; row < rows; row += length)
      sum += dOut[size_t(row) * width + column];
    dPlaceRows[size_t(blockIdx.x) * width + column] = sum;
  }
}

/// Root-mean-square norm with a gain; keeps 1 / rms of every row for the backward pass. One block a row.
__global__ void norm(const float *in, const float *gain, float *out, float *inverseRms, int width) {
  const size_t offset = size_t(blockIdx.x) * width;
  float squares = 0;
  for (int column = threadIdx.x; column < width; column += blockDim.x)
    squares += in[offset + column] * in[offset + column];
  const float inverse = rsqrtf(reduceBlock<Sum>(squares) / width + normEpsilon);
  for (int column = threadIdx.x; column < width; column += blockDim.x)
    out[offset + column] = in[offset + column] * inverse * gain[column];
  if (threadIdx.x == 0)
    inverseRms[blockIdx.x] = inverse;
}

/// dIn = dSkip + the norm's own gradient: the branch and the skip connection meet here. One block a row.
__global__ void normBackward(const float *in, const float *gain, const float *inverseRms, const float *dOut,
                             const float *dSkip, float *dIn, int width) {
  const size_t offset = size_t(blockIdx.x) * width;
  const float inverse = inverseRms[blockIdx.x];
  float product = 0;
  for (int column = threadIdx.x; column < width; column += blockDim.x)
    product += dOut[offset + column] * gain[column] * in[offset + column];
  const float mean = reduceBlock<Sum>(product) / width * inverse * inverse;
  for (int column = threadIdx.x; column < width; column += blockDim.x) {
    const float own = inverse * (dOut[offset + column] * gain[column] - in[offset + column] * mean);
    dIn[offset + column] = own + (dSkip ? dSkip[offset + column] : 0);
  }
}

/// Sums of a slice of rows each; sumSlices adds the slices up. Two steps, so that no atomics are needed.
__global__ void normGainSlices(const float *in, const float *inverseRms, const float *dOut, float *slices, int rows,
                               int width) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= width)
    return;
  float sum = 0;
  for (int row = blockIdx.y; row < rows; row += gridDim.y)
    sum += dOut[size_t(row) * width + column] * in[size_t(row) * width + column] * inverseRms[row];
  slices[size_t(blockIdx.y) * width + column] = sum;
}

__global__ void sumSlices(const float *slices, float *sums, int count, int width) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= width)
    return;
  float sum = 0;
  for (int slice = 0; slice < count; ++slice)
    sum += slices[size_t(slice) * width + column];
  sums[column] = sum;
}

/// In place over rows of `length` scores, of which row r may look at the first r % length + 1. One block a row.
__global__ void causalSoftmax(float *scores, int length) {
  float *row = scores + size_t(blockIdx.x) * length;
  const int visible = blockIdx.x % length + 1;
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < visible; i += blockDim.x)
    largest = fmaxf(largest, row[i]);
  largest = reduceBlock<Max>(largest);
  float sum = 0;
  for (int i = threadIdx.x; i < visible; i += blockDim.x)
    sum += expf(row[i] - largest);
  const float inverse = 1 / reduceBlock<Sum>(sum);
  for (int i = threadIdx.x; i < length; i += blockDim.x)
    row[i] = i < visible ? expf(row[i] - largest) * inverse : 0;
}

/// Turns the gradient of the probabilities into that of the scores, in place. One block a row.
__global__ void softmaxBackward(const float *probabilities, float *gradient, int length) {
  const size_t offset = size_t(blockIdx.x) * length;
  float product = 0;
  for (int i = threadIdx.x; i < length; i += blockDim.x)
    product += probabilities[offset + i] * gradient[offset + i];
  product = reduceBlock<Sum>(product);
  for (int i = threadIdx.x; i < length; i += blockDim.x)
    gradient[offset + i] = probabilities[offset + i] * (gradient[offset + i] - product);
}

__device__ inline float geluSlope(float x, float &value) {
  const float inner = 0.7978845608F * (x + 0.044715F * x * x * x);
  const float curve = tanhf(inner);
  value = 0.5F * x * (1 + curve);
  return 0.5F * (1 + curve) + 0.5F * x * (1 - curve * curve) * 0.7978845608F * (1 + 3 * 0.044715F * x * x);
}

__global__ void gelu(const float *in, float *out, size_t count) {
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i >= count)
    return;
  float value = 0;
  geluSlope(in[i], value);
  out[i] = value;
}

/// In place on the gradient.
__global__ void geluBackward(const float *in, float *gradient, size_t count) {
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i >= count)
    return;
  float value = 0;
  gradient[i] *= geluSlope(in[i], value);
}

/// Loss of every row, and the gradient of the mean loss in place of the logits. One block a row.
__global__ void crossEntropy(float *logits, const int *targets, float *losses, int words) {
  float *row = logits + size_t(blockIdx.x) * words;
  const int target = targets[blockIdx.x];
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < words; i += blockDim.x)
    largest = fmaxf(largest, row[i]);
  largest = reduceBlock<Max>(largest);
  float sum = 0;
  for (int i = threadIdx.x; i < words; i += blockDim.x)
    sum += expf(row[i] - largest);
  sum = reduceBlock<Sum>(sum);
  if (threadIdx.x == 0)
    losses[blockIdx.x] = logf(sum) + largest - row[target];
  __syncthreads(); // row[target] is read before it is overwritten
  const float scale = 1.0F / static_cast<float>(gridDim.x);
  for (int i = threadIdx.x; i < words; i += blockDim.x)
    row[i] = (expf(row[i] - largest) / sum - (i == target ? 1.0F : 0.0F)) * scale;
}

/// One block.
__global__ void meanOf(const float *values, int count, float *mean) {
  float sum = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    sum += values[i];
  sum = reduceBlock<Sum>(sum);
  if (threadIdx.x == 0)
    *mean = sum / static_cast<float>(count);
}

__global__ void countStep(float *steps) {
  *steps += 1;
}

/// Matrices in row-major order, `batchStride` elements apart.
template <typename Element> struct Matrix {
  Element *data;
  int stride; ///< elements from one row to the next
  long long batchStride;
};

inline constexpr int tile = 64;      ///< rows and columns of the product that a block computes
inline constexpr int tileDepth = 16; ///< columns of a and rows of b that it looks at together
inline constexpr int laneCount = 16; ///< each way; a thread has every 16th row and column of the tile
inline constexpr int perLane = tile / laneCount;
static_assert(laneCount * laneCount == blockThreads);

/// c[m, n] = alpha * a[m, k] * b[k, n] (+ c); blockIdx.z counts the matrices of a batch. A transposed operand lies
/// there with rows and columns exchanged. No alignment is asked for, and every sum is formed in the order of k.
template <bool transposedA, bool transposedB, bool adds>
__global__ void __launch_bounds__(blockThreads)
    multiply(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, int m, int n, int k, float alpha) {
  __shared__ float partOfA[tileDepth][tile + 1], partOfB[tileDepth][tile + 1];
  const int firstRow = blockIdx.y * tile, firstColumn = blockIdx.x * tile;
  const int laneRow = threadIdx.y, laneColumn = threadIdx.x;
  float sums[perLane][perLane] = {};
  for (int first = 0; first < k; first += tileDepth) {
    for (int i = laneRow * laneCount + laneColumn; i < tile * tileDepth; i += blockThreads) {
      // Neighbouring threads read neighbouring elements.
      const int ofA = transposedA ? i % tile : i / tileDepth, depthA = transposedA ? i / tile : i % tileDepth;
      const int ofB = transposedB ? i / tileDepth : i % tile, depthB = transposedB ? i % tileDepth : i / tile;
      const int row = firstRow + ofA, atA = first + depthA, column = firstColumn + ofB, atB = first + depthB;
      partOfA[depthA][ofA] = row < m && atA < k
                                 ? a.data[blockIdx.z * a.batchStride +
                                          (transposedA ? size_t(atA) * a.stride + row : size_t(row) * a.stride + atA)]
                                 : 0;
      partOfB[depthB][ofB] = column < n && atB < k
                                 ? b.data[blockIdx.z * b.batchStride + (transposedB ? size_t(column) * b.stride + atB
                                                                                    : size_t(atB) * b.stride + column)]
                                 : 0;
    }
    __syncthreads();
    for (int at = 0; at < tileDepth; ++at)
      for (int i = 0; i < perLane; ++i)
        for (int j = 0; j < perLane; ++j)
          sums[i][j] += partOfA[at][laneRow + laneCount * i] * partOfB[at][laneColumn + laneCount * j];
    __syncthreads();
  }
  __shared__ float product[tile][tile + 1];
  for (int i = 0; i < perLane; ++i)
    for (int j = 0; j < perLane; ++j)
      product[laneRow + laneCount * i][laneColumn + laneCount * j] = alpha * sums[i][j];
  // A thread stores what it computed itself, so there is nothing to wait for. Loops that stay loops show a compiler
  // that no element is left out.
#pragma unroll 1
  for (int i = 0; i < perLane; ++i)
#pragma unroll 1
    for (int j = 0; j < perLane; ++j) {
      const int inRow = laneRow + laneCount * i, inColumn = laneColumn + laneCount * j;
      const int row = firstRow + inRow, column = firstColumn + inColumn;
      if (row >= m || column >= n)
        continue;
      float &out = c.data[blockIdx.z * c.batchStride + size_t(row) * c.stride + column];
      out = product[inRow][inColumn] + (adds ? out : 0);
    }
}

struct AdamOptions {
  float rate = 6e-4F;
  float beta1 = 0.9F;
  float beta2 = 0.95F;
  float epsilon = 1e-8F;
  float decay = 0.1F;
};

__global__ void adamW(float *weights, const float *gradient, float *mean, float *square, const float *steps,
                      size_t count, AdamOptions options) {
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i >= count)
    return;
  const float g = gradient[i];
  const float m = mean[i] = options.beta1 * mean[i] + (1 - options.beta1) * g;
  const float s = square[i] = options.beta2 * square[i] + (1 - options.beta2) * g * g;
  const float correctedMean = m / (1 - powf(options.beta1, *steps));
  const float correctedSquare = s / (1 - powf(options.beta2, *steps));
  weights[i] -=
      options.rate * (correctedMean / (sqrtf(correctedSquare) + options.epsilon) + options.decay * weights[i]);
}

} // namespace kernels
