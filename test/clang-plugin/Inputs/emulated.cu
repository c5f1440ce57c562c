// SPDX-License-Identifier: Apache-2.0
/// \file
/// Kernels whose threads do not wait for each other, so that a host can run them one thread after the other and look at
/// what they touched: emulate.py compares it with what the plugin says.
#ifdef EMULATED
#include <cstddef>
#include <cstring>
#include <utility>
#define __global__ static
#define __device__ static inline
struct Dimensions {
  unsigned x, y, z;
};
static Dimensions gridDim, blockDim, blockIdx, threadIdx;
static int atomicAdd(int *sum, int addend) {
  return std::exchange(*sum, *sum + addend);
}
#endif

__global__ void guarded(int count, const int *in, int *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    out[i] = in[i] + 1;
}

__global__ void guardedUnsigned(unsigned count, const short *in, short *out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count)
    return;
  out[i] = in[i];
}

__global__ void guardedWide(size_t count, const int *in, int *out) {
  const size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  if (i <= count)
    out[i + 2] = in[i];
}

__global__ void backwards(int count, const int *in, int *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    out[count - 1 - i] = in[-i];
}

__global__ void strideOfGrid(int count, const int *in, int *out) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    out[i] = in[i];
}

__global__ void strideOfGridWide(size_t count, const char *in, char *out) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x)
    out[i] = in[i] ^ 1;
}

__global__ void strideOfBlock(int count, int *out) {
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    out[i] = 3;
}

__global__ void tooWideStride(int count, int *out) {
  for (int i = threadIdx.x; i < count; i += 2 * blockDim.x)
    out[i] = 3;
}

__global__ void rows(int width, const int *in, int *out) {
  for (int column = threadIdx.x; column < width; column += blockDim.x)
    out[size_t(blockIdx.x) * width + column] = in[blockIdx.x];
}

__global__ void rowsOfOther(int width, int pitch, int *out) {
  for (int column = threadIdx.x; column < width; column += blockDim.x)
    out[blockIdx.x * pitch + column] = 1;
}

__global__ void tile(int height, int width, const int *in, int *out) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < height && column < width)
    out[row * width + column] = in[column * height + row];
}

__global__ void fixedTile(int height, int width, int *out) {
  const int row = blockIdx.y * 4 + threadIdx.y, column = blockIdx.x * 4 + threadIdx.x;
  if (row < height && column < width)
    out[row * width + column] = 1;
}

__global__ void product(int m, int n, int k, const int *a, const int *b, int *c) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || column >= n)
    return;
  int sum = 0;
  for (int i = 0; i < k; ++i)
    sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = sum;
}

__global__ void alone(int count, const int *in, int *out) {
  for (int i = 0; i < count; ++i)
    out[i] = in[2 * i];
}

__global__ void everySecond(int count, int *out) {
  for (int i = 0; i < count; i += 2)
    out[i] = 1;
}

__global__ void downwards(int count, int *out) {
  for (int i = count; i > 0; --i)
    out[i] = 1;
}

__global__ void pieces(int count, int *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    for (int part = 0; part < 3; ++part)
      out[3 * i + part] = part;
}

__global__ void onePerBlock(int *out, const int *in) {
  if (threadIdx.x == 0)
    out[blockIdx.x] = in[0];
}

__global__ void oneInAll(int *out) {
  if (blockIdx.x == 0 && threadIdx.x == 0)
    *out = 1;
}

__global__ void lastThread(int *out) {
  if (threadIdx.x == blockDim.x - 1)
    out[blockIdx.x] = 1;
}

__global__ void secondThread(int *out) {
  if (threadIdx.x == 1)
    out[blockIdx.x] = 1;
}

__global__ void quotient(int count, const int *in, int *out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count / 2)
    out[i / 3] = in[i % 5];
}

__global__ void sums(int count, const int *in, int *sum, int *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    atomicAdd(sum, in[i]);
  if (i < 4)
    out[i] = 1;
}

__global__ void accumulated(int count, int width, const int *in, int *out) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= width)
    return;
  int sum = 0;
  for (int row = 0; row < count; ++row)
    sum += in[row * width + column];
  out[column] = sum;
}

__global__ void written(int count, int rounds, int *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count)
    return;
  for (int round = 0; round < rounds; ++round)
    out[i] = round;
}

__global__ void cleared(unsigned char width, char *out) {
  memset(out + blockIdx.x * width, 0, width);
}

__global__ void between(int low, int high, const int *in, int *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= low && i < high)
    out[i] = in[i - low];
}

__global__ void sevenths(int count, int *out, const int *in) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && i % 7 == 0)
    out[i] = in[i / 7];
}

__global__ void shifted(int count, int *values) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    values[i] = values[i + 8];
}

__global__ void either(int count, int *a, int *b) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    (count & 1 ? a : b)[i] = 1;
}

__global__ void wrapping(unsigned char count, int *out) {
  const unsigned char i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    out[i] = 1;
}

__global__ void narrow(short count, short begin, int *out) {
  const short i = static_cast<short>(begin + threadIdx.x);
  if (i < count)
    out[i] = 1;
}

// What comes next in memory after a row depends on the strides: the next row, the same row of the next matrix, or
// nothing, where there is one matrix.
__global__ void matrices(int rowCount, int columnCount, int rowStride, int matrixStride, int *out) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rowCount && column < columnCount)
    out[blockIdx.z * size_t(matrixStride) + row * size_t(rowStride) + column] = 4;
}

__global__ void tilesOfMatrices(int rowCount, int columnCount, int rowStride, int matrixStride, int *out) {
  const int firstRow = blockIdx.y * 6, firstColumn = blockIdx.x * 9;
#pragma unroll 1
  for (int i = 0; i < 3; ++i)
#pragma unroll 1
    for (int j = 0; j < 3; ++j) {
      const int row = firstRow + int(threadIdx.y) + 2 * i, column = firstColumn + int(threadIdx.x) + 3 * j;
      if (row < rowCount && column < columnCount)
        out[blockIdx.z * size_t(matrixStride) + row * size_t(rowStride) + column] = 4;
    }
}

// What a thread writes tells which one it was.
__global__ void chunks(int count, int *out) {
  const int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
#pragma unroll 1
  for (int i = 0; i < 4; ++i)
    if (i < count)
      out[first + i] = 10 * threadIdx.x + blockIdx.x;
}

__global__ void chunksTooLong(int count, int *out) {
  const int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
#pragma unroll 1
  for (int i = 0; i < 5; ++i)
    out[first + i] = 10 * threadIdx.x + blockIdx.x + count;
}

__global__ void plane(int count, int *out) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  out[y * (gridDim.x * blockDim.x) + x] = 100 * x + y + count;
}

__global__ void steps(int count, int *out) {
  int step = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    out[i] = 100 * step++ + threadIdx.x;
}

__global__ void stepsOfAllBlocks(int count, int *out) {
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    out[i] = blockIdx.x;
}

__global__ void axisLeftOut(int count, int *out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    out[i] = threadIdx.y;
}

#ifdef EMULATED
static bool isBackwards;
extern "C" void set_backwards(bool backwards) {
  isBackwards = backwards;
}

template <class... Parameters, size_t... Indices>
static void runThread(void (*kernel)(Parameters...), void **arguments, std::index_sequence<Indices...>) {
  kernel(*static_cast<Parameters *>(arguments[Indices])...);
}

template <class... Parameters>
static void runAll(void (*kernel)(Parameters...), const unsigned *grid, const unsigned *block, void **arguments) {
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  const size_t threads = size_t{blockDim.x} * blockDim.y * blockDim.z;
  const size_t all = threads * gridDim.x * gridDim.y * gridDim.z;
  const auto placeOf = [](size_t number, Dimensions of) {
    return Dimensions{unsigned(number % of.x), unsigned(number / of.x % of.y), unsigned(number / of.x / of.y)};
  };
  for (size_t i = 0; i < all; ++i) {
    const size_t thread = isBackwards ? all - 1 - i : i;
    blockIdx = placeOf(thread / threads, gridDim);
    threadIdx = placeOf(thread % threads, blockDim);
    runThread(kernel, arguments, std::index_sequence_for<Parameters...>());
  }
}

#define EMULATE(name)                                                                                                  \
  extern "C" void run_##name(const unsigned *grid, const unsigned *block, void **arguments) {                          \
    runAll(name, grid, block, arguments);                                                                              \
  }
EMULATE(guarded)
EMULATE(guardedUnsigned)
EMULATE(guardedWide)
EMULATE(backwards)
EMULATE(strideOfGrid)
EMULATE(strideOfGridWide)
EMULATE(strideOfBlock)
EMULATE(tooWideStride)
EMULATE(rows)
EMULATE(rowsOfOther)
EMULATE(tile)
EMULATE(fixedTile)
EMULATE(product)
EMULATE(alone)
EMULATE(everySecond)
EMULATE(downwards)
EMULATE(pieces)
EMULATE(onePerBlock)
EMULATE(oneInAll)
EMULATE(lastThread)
EMULATE(secondThread)
EMULATE(quotient)
EMULATE(sums)
EMULATE(accumulated)
EMULATE(written)
EMULATE(cleared)
EMULATE(between)
EMULATE(sevenths)
EMULATE(shifted)
EMULATE(either)
EMULATE(wrapping)
EMULATE(narrow)
EMULATE(matrices)
EMULATE(tilesOfMatrices)
EMULATE(chunks)
EMULATE(chunksTooLong)
EMULATE(plane)
EMULATE(steps)
EMULATE(stepsOfAllBlocks)
EMULATE(axisLeftOut)
#endif
