// SPDX-License-Identifier: Apache-2.0
/// \file
/// What one direction of the link loses to the other, also where the other carries little: copies of 64 MiB beside
/// copies the other way, and beside a kernel of few blocks that reads, or writes, host memory. Build: nvcc -O2
/// -std=c++17 -arch=native duplex.cu -o duplex
#include "check.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace {

#define CHECK(call) check(call, #call)

constexpr size_t poolBytes = size_t{2} << 30, copyBytes = size_t{64} << 20;

/// Each block goes over its own part of host memory until it is told to stop, and counts what it has moved.
__global__ void keepReading(const uint4 *host, size_t count, const volatile int *stop, unsigned long long *moved,
                            uint4 *sink) {
  const size_t part = count / gridDim.x;
  const uint4 *mine = host + part * blockIdx.x;
  uint4 sum{};
  size_t at = threadIdx.x;
  for (unsigned round = 0; round % 8 != 0 || *stop == 0; ++round) {
    for (int i = 0; i < 8; ++i) {
      const uint4 value = __ldcv(mine + at);
      sum.x ^= value.x ^ value.y ^ value.z ^ value.w;
      at = at + blockDim.x < part ? at + blockDim.x : threadIdx.x;
    }
    if (threadIdx.x == 0)
      atomicAdd(moved, 8ULL * blockDim.x * sizeof(uint4));
  }
  if (sum.x == 0x12345678)
    *sink = sum;
}

__global__ void keepWriting(uint4 *host, size_t count, const volatile int *stop, unsigned long long *moved) {
  const size_t part = count / gridDim.x;
  uint4 *mine = host + part * blockIdx.x;
  size_t at = threadIdx.x;
  for (unsigned round = 0; round % 8 != 0 || *stop == 0; ++round) {
    for (int i = 0; i < 8; ++i) {
      mine[at] = make_uint4(1, 2, 3, 4);
      at = at + blockDim.x < part ? at + blockDim.x : threadIdx.x;
    }
    if (threadIdx.x == 0)
      atomicAdd(moved, 8ULL * blockDim.x * sizeof(uint4));
  }
}

enum Direction { up, down };
const char *nameOf(Direction direction) {
  return direction == up ? "up" : "down";
}

struct Bench {
  char *host[2], *device[2];
  cudaStream_t streams[2], beside, counting;
  cudaEvent_t begin, end;
  int *stop;
  unsigned long long *moved; ///< on the device

  Bench() {
    for (int direction : {up, down}) {
      CHECK(cudaHostAlloc(reinterpret_cast<void **>(&host[direction]), poolBytes, cudaHostAllocDefault));
      CHECK(cudaMalloc(reinterpret_cast<void **>(&device[direction]), poolBytes));
      std::fill_n(host[direction], poolBytes, char(direction));
      CHECK(cudaStreamCreateWithFlags(&streams[direction], cudaStreamNonBlocking));
    }
    CHECK(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&counting, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaHostAlloc(reinterpret_cast<void **>(&stop), sizeof *stop, cudaHostAllocDefault));
    CHECK(cudaMalloc(reinterpret_cast<void **>(&moved), sizeof *moved));
  }

  void submit(Direction direction, int copies) {
    for (int i = 0; i < copies; ++i) {
      const size_t at = i * copyBytes % poolBytes;
      if (direction == down)
        CHECK(cudaMemcpyAsync(host[down] + at, device[down] + at, copyBytes, cudaMemcpyDeviceToHost, streams[down]));
      else
        CHECK(cudaMemcpyAsync(device[up] + at, host[up] + at, copyBytes, cudaMemcpyHostToDevice, streams[up]));
    }
  }

  /// GB/s of copies, beside whatever runs.
  double rateOf(Direction direction, int copies) {
    submit(direction, 4);
    CHECK(cudaEventRecord(begin, streams[direction]));
    submit(direction, copies);
    CHECK(cudaEventRecord(end, streams[direction]));
    CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    return copies * double(copyBytes) / ms / 1e6;
  }

  double besideCopies(Direction direction) {
    submit(direction == up ? down : up, 240);
    const double rate = rateOf(direction, 64);
    CHECK(cudaDeviceSynchronize());
    return rate;
  }

  double movedBytes() {
    unsigned long long bytes = 0;
    CHECK(cudaMemcpyAsync(&bytes, moved, sizeof bytes, cudaMemcpyDeviceToHost, counting));
    CHECK(cudaStreamSynchronize(counting));
    return double(bytes);
  }

  void besideKernel(Direction direction, int blocks, const double (&alone)[2]) {
    const Direction other = direction == up ? down : up;
    *stop = 0;
    CHECK(cudaMemset(moved, 0, sizeof *moved));
    auto *words = reinterpret_cast<uint4 *>(host[other]);
    if (other == up)
      keepReading<<<blocks, 256, 0, beside>>>(words, poolBytes / sizeof *words, stop, moved,
                                              reinterpret_cast<uint4 *>(device[up]));
    else
      keepWriting<<<blocks, 256, 0, beside>>>(words, poolBytes / sizeof *words, stop, moved);
    rateOf(direction, 8);
    cudaEvent_t from, until;
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&until));
    const double before = movedBytes();
    CHECK(cudaEventRecord(from, counting));
    const double rate = rateOf(direction, 48);
    const double after = movedBytes();
    CHECK(cudaEventRecord(until, counting));
    CHECK(cudaEventSynchronize(until));
    *stop = 1;
    CHECK(cudaStreamSynchronize(beside));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, from, until));
    print(direction, "a kernel", blocks, rate, (after - before) / ms / 1e6, alone);
  }

  static void print(Direction direction, const char *beside, int blocks, double rate, double otherRate,
                    const double (&alone)[2]) {
    const Direction other = direction == up ? down : up;
    const double lost = 1 - rate / alone[direction], share = otherRate / alone[other];
    std::printf(
        "%-4s %5.2f GB/s beside %s of %3d blocks, %-4s %5.2f GB/s: loses %.3f of its rate per rate of the other\n",
        nameOf(direction), rate, beside, blocks, nameOf(other), otherRate, lost / share);
  }
};

} // namespace

int main() {
  Bench bench;
  double alone[2] = {0, 0};
  for (Direction direction : {up, down})
    for (int i = 0; i < 3; ++i)
      alone[direction] = std::max(alone[direction], bench.rateOf(direction, 64));
  std::printf("alone: up %.2f, down %.2f GB/s\n", alone[up], alone[down]);
  std::printf("both at once: up %.2f, down %.2f GB/s\n", bench.besideCopies(up), bench.besideCopies(down));
  for (Direction direction : {down, up})
    for (int blocks : {1, 2, 4, 8, 16, 64})
      bench.besideKernel(direction, blocks, alone);
}
