// SPDX-License-Identifier: Apache-2.0
/// \file
/// CUB's device algorithms on plain pointers, each instantiated once.
#include <cub/cub.cuh>

struct Twice {
  __device__ int operator()(int value) const { return 2 * value; }
};
struct IsOdd {
  __device__ bool operator()(int value) const { return value & 1; }
};
struct Clear {
  __device__ void operator()(int &value) const { value = 0; }
};
struct ClearAt {
  int *values;
  __device__ void operator()(int i) const { values[i] = 0; }
};

void instantiate(void *scratch, size_t &scratchBytes, const int *in, int *out, int *count, const int *offsets, int n,
                 cudaStream_t stream) {
  cub::DeviceReduce::Sum(scratch, scratchBytes, in, out, n, stream);
  cub::DeviceSegmentedReduce::Sum(scratch, scratchBytes, in, out, n, offsets, offsets + 1, stream);
  cub::DeviceScan::ExclusiveSum(scratch, scratchBytes, in, out, n, stream);
  cub::DeviceRadixSort::SortPairs(scratch, scratchBytes, reinterpret_cast<const unsigned *>(in),
                                  reinterpret_cast<unsigned *>(out), in, out, n, 0, 32, stream);
  cub::DeviceSelect::If(scratch, scratchBytes, in, out, count, n, IsOdd(), stream);
  cub::DeviceSelect::Flagged(scratch, scratchBytes, in, reinterpret_cast<const char *>(in), out, count, n, stream);
  cub::DeviceHistogram::HistogramEven(scratch, scratchBytes, in, out, 129, 0, 128, n, stream);
  cub::DeviceMergeSort::SortKeys(scratch, scratchBytes, out, n, cuda::std::less<int>(), stream);
  cub::DeviceAdjacentDifference::SubtractLeftCopy(scratch, scratchBytes, in, out, n, cuda::std::minus<int>(), stream);
  cub::DeviceFor::ForEachN(out, n, Clear(), stream);
  cub::DeviceFor::Bulk(n, ClearAt{out}, stream);
  cub::DeviceTransform::Transform(in, out, n, Twice(), stream);
}
