// SPDX-License-Identifier: Apache-2.0
#include "test/gpu/CorpusLaunches.h"

#include "test/clang-plugin/corpus/cooperative.cu"
#include "test/clang-plugin/corpus/cub.cu"
#include "test/clang-plugin/corpus/example.cu"
#include "test/clang-plugin/corpus/hard.cu"

#include <thrust/execution_policy.h>
#include <thrust/gather.h>
#include <thrust/scatter.h>
#include <thrust/sort.h>

namespace pumpgraph::smoke {
namespace {

/// Thrust's temporary memory.
struct TemporaryMemory {
  using value_type = char;
  const CorpusMemory *memory;

  char *allocate(std::ptrdiff_t bytes) { return static_cast<char *>(memory->fresh(static_cast<std::size_t>(bytes))); }
  void deallocate(char *, std::size_t) {}
};

class Launches {
public:
  Launches(cudaStream_t stream, const CorpusInputs &inputs, const CorpusMemory &memory)
      : stream_(stream), in_(inputs), memory_(memory) {}

  cudaError_t run() {
    hard();
    cooperative();
    example();
    // A block, and many: each size has kernels of its own.
    for (const int count : {1000, corpusCount}) {
      cubReductions(count);
      cubOthers(count);
      thrustAlgorithms(count);
    }
    return failed_ != cudaSuccess ? failed_ : cudaGetLastError();
  }

private:
  template <typename Value> Value *fresh(std::size_t count) {
    return static_cast<Value *>(memory_.fresh(count * sizeof(Value)));
  }
  template <typename Value> Value *copyOf(const Value *from, std::size_t count) {
    Value *copy = static_cast<Value *>(memory_.freshValues(count * sizeof(Value)));
    check(cudaMemcpyAsync(copy, from, count * sizeof(Value), cudaMemcpyDeviceToDevice, stream_));
    return copy;
  }
  /// Of values that something else has counted.
  template <typename Value> Value *countedCopyOf(const Value *from, std::size_t count) {
    Value *copy = fresh<Value>(count);
    check(cudaMemcpyAsync(copy, from, count * sizeof(Value), cudaMemcpyDeviceToDevice, stream_));
    return copy;
  }
  template <typename Value> Value *zeros(std::size_t count) {
    Value *made = static_cast<Value *>(memory_.freshValues(count * sizeof(Value)));
    check(cudaMemsetAsync(made, 0, count * sizeof(Value), stream_));
    return made;
  }
  void check(cudaError_t status) {
    if (status != cudaSuccess && failed_ == cudaSuccess)
      failed_ = status;
  }
  /// Asks one of CUB's algorithms for its scratch memory, and runs it.
  template <typename Algorithm> void withScratch(Algorithm algorithm) {
    std::size_t bytes = 0;
    check(algorithm(nullptr, bytes));
    void *scratch = memory_.fresh(bytes + 1);
    check(algorithm(scratch, bytes));
  }

  void hard() {
    const int n = 5000, blocks = 20;
    const float *x = in_.floats, *y = in_.floats + 100000, *z = in_.floats + 200000;
    axpy<<<blocks, 256, 0, stream_>>>(n, 2, x, copyOf(y, n));
    copyStrided<<<4, 256, 0, stream_>>>(n, x, fresh<float>(n), fresh<float>(n));
    multiply<<<dim3(4, 4), dim3(16, 16), 0, stream_>>>(64, 64, 64, x, y, fresh<float>(4096));
    sumAtomically<<<1, 256, 0, stream_>>>(x, copyOf(y, 1), 256);
    scatter<<<blocks, 256, 0, stream_>>>(in_.places, x, fresh<float>(corpusCount), n);
    structFields<<<1, 256, 0, stream_>>>(pointers(x, 256));
    structIndexed<<<1, 256, 0, stream_>>>(pointers(x, 256), 0);
    structIndexed<<<1, 256, 0, stream_>>>(pointers(x, 256), 1);
    throughFunctions<<<1, 256, 0, stream_>>>(x, fresh<float>(256));
    structThroughFunction<<<1, 256, 0, stream_>>>(pointers(x, 256));
    readList<<<1, 1, 0, stream_>>>(static_cast<const Node *>(zeroedState()), fresh<float>(1));
    recursive<<<1, 8, 0, stream_>>>(copyOf(in_.values, 64), fresh<int>(1));
    for (const int which : {0, 1})
      oneOfTwo<<<1, 256, 0, stream_>>>(fresh<float>(256), fresh<float>(256), x, which);
    addressAsInteger<<<1, 1, 0, stream_>>>(reinterpret_cast<std::uint64_t>(x), fresh<float>(1));
    loadByText<<<1, 1, 0, stream_>>>(x, fresh<float>(1));
    vectors<<<blocks, 256, 0, stream_>>>(reinterpret_cast<const float4 *>(x), fresh<float4>(n), n);
    storesAddress<<<1, 1, 0, stream_>>>(x, fresh<const float *>(1));
    addOne<double, 4><<<1, 1, 0, stream_>>>(reinterpret_cast<double *>(copyOf(in_.values, 64)));
    halves<<<1, 1, 0, stream_>>>(reinterpret_cast<__half2 *>(copyOf(x, 64)), reinterpret_cast<const __half2 *>(y),
                                 reinterpret_cast<__nv_bfloat162 *>(copyOf(z, 64)));
    swapBuffers<<<1, 32, 0, stream_>>>(copyOf(x, 256), copyOf(y, 256), 3);
    transposed<<<dim3(2, 2), dim3(32, 32), 0, stream_>>>(x, fresh<float>(4096), 64);
    embedded<<<64, 128, 0, stream_>>>(in_.tokens, x, fresh<float>(64 * 128), 128);
    masked<<<1, 256, 0, stream_>>>(copyOf(x, 256), reinterpret_cast<const unsigned char *>(in_.values), 256);
    hidden<<<1, 1, 0, stream_>>>(fresh<float>(1));
    internal<<<1, 1, 0, stream_>>>(fresh<float>(1));
  }

  Pointers pointers(const float *a, int n) {
    Pointers made{a, fresh<float>(n), n, {}};
    made.inner.c = fresh<float>(n);
    made.inner.d[0] = copyOf(in_.floats + 300000, n);
    made.inner.d[1] = copyOf(in_.floats + 310000, n);
    return made;
  }

  void cooperative() {
    const float *x = in_.floats;
    const int n = 4096;
    blockSums<<<16, 256, 0, stream_>>>(x, fresh<float>(16), n);
    float *partial = fresh<float>(1024), *out = fresh<float>(1);
    int count = n;
    void *arguments[] = {&x, &partial, &out, &count};
    check(cudaLaunchCooperativeKernel(reinterpret_cast<const void *>(gridWide), 4, 256, arguments, 0, stream_));
    groupCopy<<<16, 256, 0, stream_>>>(x, fresh<float>(n));
    barrierCopy<<<16, 256, 0, stream_>>>(in_.values, fresh<int>(n));
    pipelined<<<1, 128, 0, stream_>>>(reinterpret_cast<const float4 *>(x), fresh<float4>(128 * 4), 4);
    primitives<<<1, 128, 0, stream_>>>(reinterpret_cast<const int4 *>(in_.values), fresh<int4>(128));
    lastBlock<<<1, 128, 0, stream_>>>(in_.values, zeros<int>(1), static_cast<unsigned *>(zeroedState()), fresh<int>(1));
    flagged<<<1, 128, 0, stream_>>>(in_.ones, in_.values, fresh<int>(128));
  }

  /// Zeros by which kernels find their way.
  void *zeroedState() {
    void *made = memory_.fresh(64);
    check(cudaMemsetAsync(made, 0, 64, stream_));
    return made;
  }

  void example() {
    using namespace kernels;
    const float *x = in_.floats, *y = in_.floats + 100000, *z = in_.floats + 200000;
    const int rows = 64, width = 128, length = 32, words = 64;
    const std::size_t all = std::size_t{rows} * width;
    fillNormal<<<blocksFor(all), blockThreads, 0, stream_>>>(fresh<float>(all), all, 1, 7);
    fill<<<blocksFor(all), blockThreads, 0, stream_>>>(fresh<float>(all), all, 3);
    embed<<<rows, blockThreads, 0, stream_>>>(in_.tokens, x, y, fresh<float>(all), length, width);
    embedTokensBackward<<<words, blockThreads, 0, stream_>>>(in_.tokens, x, fresh<float>(all), rows, width);
    embedPlacesBackward<<<length, blockThreads, 0, stream_>>>(x, fresh<float>(length * width), rows, length, width);
    float *inverse = fresh<float>(rows);
    norm<<<rows, blockThreads, 0, stream_>>>(x, y, fresh<float>(all), inverse, width);
    normBackward<<<rows, blockThreads, 0, stream_>>>(x, y, inverse, z, z + all, fresh<float>(all), width);
    float *slices = fresh<float>(8 * width);
    normGainSlices<<<dim3(1, 8), blockThreads, 0, stream_>>>(x, inverse, z, slices, rows, width);
    sumSlices<<<1, blockThreads, 0, stream_>>>(slices, fresh<float>(width), 8, width);
    causalSoftmax<<<rows, blockThreads, 0, stream_>>>(copyOf(x, rows * length), length);
    softmaxBackward<<<rows, blockThreads, 0, stream_>>>(x, copyOf(y, rows * length), length);
    gelu<<<blocksFor(all), blockThreads, 0, stream_>>>(x, fresh<float>(all), all);
    geluBackward<<<blocksFor(all), blockThreads, 0, stream_>>>(x, copyOf(y, all), all);
    crossEntropy<<<rows, blockThreads, 0, stream_>>>(copyOf(x, rows * words), in_.tokens, fresh<float>(rows), words);
    meanOf<<<1, blockThreads, 0, stream_>>>(x, rows, fresh<float>(1));
    countStep<<<1, 1, 0, stream_>>>(copyOf(x, 1));
    float *square = copyOf(x, all);
    fill<<<blocksFor(all), blockThreads, 0, stream_>>>(square, all, 0.5F);
    float *steps = fresh<float>(1);
    fill<<<1, blockThreads, 0, stream_>>>(steps, 1, 3);
    adamW<<<blocksFor(all), blockThreads, 0, stream_>>>(copyOf(x, all), y, copyOf(z, all), square, steps, all, {});
  }

  void cubReductions(int n) {
    const int *in = in_.values;
    // Sums of blocks: nothing is found by them.
    std::size_t bytes = 0;
    check(cub::DeviceReduce::Sum(nullptr, bytes, in, fresh<int>(1), n, stream_));
    check(cub::DeviceReduce::Sum(memory_.freshValues(bytes + 1), bytes, in, fresh<int>(1), n, stream_));
    withScratch([&, out = fresh<int>(1024)](void *scratch, std::size_t &size) {
      return cub::DeviceSegmentedReduce::Sum(scratch, size, in, out, 1024, in_.offsets, in_.offsets + 1, stream_);
    });
    withScratch([&, out = fresh<int>(n)](void *scratch, std::size_t &size) {
      return cub::DeviceScan::ExclusiveSum(scratch, size, in, out, n, stream_);
    });
    withScratch([&, bins = fresh<int>(128)](void *scratch, std::size_t &size) {
      return cub::DeviceHistogram::HistogramEven(scratch, size, in, bins, 129, 0, 128, n, stream_);
    });
  }

  void cubOthers(int n) {
    const int *in = in_.values;
    // A radix sort counts digits first; keys that are others afterwards have no places.
    withScratch([&, in = countedCopyOf(in, n), keys = fresh<unsigned>(n), values = fresh<int>(n)](void *scratch,
                                                                                                  std::size_t &size) {
      return cub::DeviceRadixSort::SortPairs(scratch, size, reinterpret_cast<const unsigned *>(in), keys,
                                             static_cast<const int *>(in_.places), values, n, 0, 32, stream_);
    });
    withScratch([&, out = fresh<int>(n), count = fresh<int>(1)](void *scratch, std::size_t &size) {
      return cub::DeviceSelect::If(scratch, size, in, out, count, n, IsOdd(), stream_);
    });
    withScratch([&, flags = copyOf(reinterpret_cast<const char *>(in), n), out = fresh<int>(n),
                 count = fresh<int>(1)](void *scratch, std::size_t &size) {
      return cub::DeviceSelect::Flagged(scratch, size, in, static_cast<const char *>(flags), out, count, n, stream_);
    });
    withScratch([&, keys = copyOf(in, n)](void *scratch, std::size_t &size) {
      return cub::DeviceMergeSort::SortKeys(scratch, size, keys, n, cuda::std::less<int>(), stream_);
    });
    withScratch([&, out = fresh<int>(n)](void *scratch, std::size_t &size) {
      return cub::DeviceAdjacentDifference::SubtractLeftCopy(scratch, size, in, out, n, cuda::std::minus<int>(),
                                                             stream_);
    });
    check(cub::DeviceFor::ForEachN(copyOf(in, n), n, Clear(), stream_));
    check(cub::DeviceFor::Bulk(n, ClearAt{fresh<int>(n)}, stream_));
    check(cub::DeviceTransform::Transform(in, fresh<int>(n), n, Twice(), stream_));
  }

  void thrustAlgorithms(int n) {
    TemporaryMemory temporary{&memory_};
    const auto policy = thrust::cuda::par_nosync(temporary).on(stream_);
    int *keys = countedCopyOf(in_.values, n);
    thrust::sort(policy, keys, keys + n);
    const int *map = in_.tokens;
    const int *from = in_.values;
    thrust::gather(policy, map, map + n, from, fresh<int>(n));
    thrust::scatter(policy, from, from + n, in_.places, fresh<int>(corpusCount));
  }

  cudaStream_t stream_;
  const CorpusInputs &in_;
  const CorpusMemory &memory_;
  cudaError_t failed_ = cudaSuccess;
};

} // namespace

cudaError_t launchCorpus(cudaStream_t stream, const CorpusInputs &inputs, const CorpusMemory &memory) {
  return Launches(stream, inputs, memory).run();
}

} // namespace pumpgraph::smoke
