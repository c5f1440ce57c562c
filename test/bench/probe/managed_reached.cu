// SPDX-License-Identifier: Apache-2.0
/// \file
/// Two things about managed memory that kernels reach in host memory.
/// What was written on the device and evicted, read where it is, with each kind of advice: 16 pieces of 16 MiB.
/// And operations on 24 MiB of other memory beside kernels that keep the link busy, one after the other, each of 24 or
/// of 192 MiB: a discard, a prefetch that brings no value, an eviction and a prefetch.
/// At most 792 MiB of managed memory. Prints one line per case, medians. nvcc -O2 -std=c++20 -arch=sm_90
/// managed_reached.cu -lcuda
#include "check.h"
#include "check_driver.h"
#include "timing.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t mebi = std::size_t{1} << 20;
constexpr cudaMemLocation device{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};
constexpr int blocks = 1056, threads = 256;

__global__ void readAll(const float4 *words, std::size_t count, float *sink) {
  float sum = 0;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const float4 word = words[i];
    sum += word.x + word.y + word.z;
  }
  if (sum == -1)
    *sink = sum;
}

__global__ void writeAll(float4 *words, std::size_t count) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    words[i] = make_float4(1, 2, 3, 4);
}

__global__ void copyAll(float4 *to, const float4 *from, std::size_t count) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    to[i] = from[i];
}

class Measurement {
public:
  Measurement() {
    check(cudaStreamCreateWithFlags(&moves_, cudaStreamNonBlocking), "stream");
    check(cudaStreamCreateWithFlags(&kernels_, cudaStreamNonBlocking), "stream");
    check(cudaMalloc(reinterpret_cast<void **>(&sink_), sizeof(float)), "sink");
    check(cudaMalloc(reinterpret_cast<void **>(&onDevice_), fieldBytes), "device memory");
  }

  void readWhereEvicted() {
    constexpr std::size_t pieces = 16, bytes = 16 * mebi, rounds = 6;
    char *memory = nullptr;
    check(cudaMallocManaged(reinterpret_cast<void **>(&memory), pieces * bytes), "managed");
    const std::pair<const char *, std::vector<cudaMemoryAdvise>> kinds[] = {
        {"no advice", {}},
        {"prefer_host", {cudaMemAdviseSetPreferredLocation}},
        {"prefer_host, accessed_by", {cudaMemAdviseSetPreferredLocation, cudaMemAdviseSetAccessedBy}}};
    for (const auto &[name, advice] : kinds) {
      for (const cudaMemoryAdvise each : advice)
        check(cudaMemAdvise(memory, pieces * bytes, each, each == cudaMemAdviseSetAccessedBy ? device : host),
              "advice");
      std::vector<double> ms;
      for (std::size_t round = 0; round < rounds; ++round) {
        for (std::size_t piece = 0; piece < pieces; ++piece) {
          char *at = memory + piece * bytes;
          prefetch(at, bytes, device);
          writeAll<<<blocks, threads, 0, moves_>>>(reinterpret_cast<float4 *>(at), bytes / sizeof(float4));
          prefetch(at, bytes, host);
        }
        for (std::size_t piece = 0; piece < pieces; ++piece)
          ms.push_back(timed([&] {
            readAll<<<blocks, threads, 0, moves_>>>(reinterpret_cast<float4 *>(memory + piece * bytes),
                                                    bytes / sizeof(float4), sink_);
          }));
        discard(memory, pieces * bytes);
      }
      std::printf("evicted, then read where it is, %-24s %6.1f GB/s\n", name,
                  static_cast<double>(bytes) / median(ms) / 1e6);
    }
    check(cudaFree(memory), "free");
  }

  void operationsBesideKernels() {
    check(cudaMallocManaged(reinterpret_cast<void **>(&field_), fieldBytes), "managed");
    check(cudaMallocManaged(reinterpret_cast<void **>(&other_), fieldBytes), "managed");
    check(cudaMallocManaged(reinterpret_cast<void **>(&moved_), movedBytes), "managed");
    for (char *memory : {field_, other_}) {
      check(cudaMemAdvise(memory, fieldBytes, cudaMemAdviseSetPreferredLocation, host), "advice");
      check(cudaMemAdvise(memory, fieldBytes, cudaMemAdviseSetAccessedBy, device), "advice");
      writeAll<<<blocks, threads, 0, kernels_>>>(reinterpret_cast<float4 *>(memory), fieldBytes / sizeof(float4));
    }
    check(cudaStreamSynchronize(kernels_), "fill");
    std::printf("%-36s %9s %9s %9s %9s %9s, ms\n", "beside", "a kernel", "discard", "no value", "evict", "prefetch");
    for (const Kind kind : {Kind::None, Kind::OnDevice, Kind::Read, Kind::Write, Kind::Both})
      for (const std::size_t bytes : {24 * mebi, 192 * mebi})
        if (kind != Kind::None || bytes == 24 * mebi)
          operationsBeside(kind, bytes);
  }

private:
  enum class Kind { None, OnDevice, Read, Write, Both };
  static constexpr std::size_t fieldBytes = 384 * mebi, movedBytes = 24 * mebi;

  static const char *nameOf(Kind kind) {
    switch (kind) {
    case Kind::None:
      return "nothing";
    case Kind::OnDevice:
      return "copies on the device";
    case Kind::Read:
      return "reading host memory";
    case Kind::Write:
      return "writing host memory";
    case Kind::Both:
      return "reading one and writing another";
    }
    return "";
  }

  double timed(const std::function<void()> &work) {
    check(cudaStreamSynchronize(moves_), "before");
    const double start = nowMs();
    work();
    check(cudaStreamSynchronize(moves_), "after");
    return nowMs() - start;
  }
  void prefetch(char *at, std::size_t bytes, cudaMemLocation to) {
    check(cudaMemPrefetchAsync(at, bytes, to, 0, moves_), "prefetch");
  }
  void discard(char *at, std::size_t bytes) {
    CUdeviceptr address = reinterpret_cast<CUdeviceptr>(at);
    check(cuMemDiscardBatchAsync(&address, &bytes, 1, 0, moves_), "discard");
  }

  void launch(Kind kind, std::size_t bytes, std::size_t run) {
    const std::size_t offset = run % (fieldBytes / bytes) * bytes, count = bytes / sizeof(float4);
    float4 *const here = reinterpret_cast<float4 *>(field_ + offset);
    switch (kind) {
    case Kind::None:
      return;
    case Kind::OnDevice:
      return copyAll<<<blocks, threads, 0, kernels_>>>(reinterpret_cast<float4 *>(onDevice_ + fieldBytes / 2),
                                                       reinterpret_cast<float4 *>(onDevice_), count);
    case Kind::Read:
      return readAll<<<blocks, threads, 0, kernels_>>>(here, count, sink_);
    case Kind::Write:
      return writeAll<<<blocks, threads, 0, kernels_>>>(here, count);
    case Kind::Both:
      return copyAll<<<blocks, threads, 0, kernels_>>>(reinterpret_cast<float4 *>(other_ + offset), here, count);
    }
  }

  /// In each round the kernels are to keep the link busy for longer than the operations take; what ends later than they
  /// do is left out.
  void operationsBeside(Kind kind, std::size_t bytes) {
    constexpr std::size_t rounds = 5, warmups = 10;
    double kernelMs = 0;
    if (kind != Kind::None) {
      const double start = nowMs();
      for (std::size_t run = 0; run < warmups; ++run)
        launch(kind, bytes, run);
      check(cudaStreamSynchronize(kernels_), "kernels");
      kernelMs = (nowMs() - start) / warmups;
    }
    std::vector<double> discards, empty, evictions, prefetches;
    for (std::size_t round = 0; round < rounds; ++round) {
      constexpr double queueMs = 60;
      constexpr std::size_t mostInQueue = 900; // beyond, the driver keeps whoever launches
      const std::size_t runs = kind == Kind::None ? 0 : std::min<std::size_t>(mostInQueue, 1 + queueMs / kernelMs);
      for (std::size_t run = 0; run < runs; ++run)
        launch(kind, bytes, run);
      const auto measure = [&](std::vector<double> &ms, const std::function<void()> &work) {
        const double took = timed(work);
        if (kind == Kind::None || cudaStreamQuery(kernels_) == cudaErrorNotReady)
          ms.push_back(took);
      };
      measure(empty, [&] { prefetch(moved_, movedBytes, device); });
      measure(discards, [&] { discard(moved_, movedBytes); });
      prefetch(moved_, movedBytes, device);
      check(cudaMemsetAsync(moved_, 1, movedBytes, moves_), "fill");
      measure(evictions, [&] { prefetch(moved_, movedBytes, host); });
      measure(prefetches, [&] { prefetch(moved_, movedBytes, device); });
      check(cudaStreamSynchronize(kernels_), "kernels");
      discard(moved_, movedBytes);
    }
    char name[64];
    std::snprintf(name, sizeof name, "%s, %zu MiB each", nameOf(kind), bytes / mebi);
    const auto show = [](const std::vector<double> &ms) { return ms.empty() ? -1 : median(ms); };
    std::printf("%-36s %9.2f %9.2f %9.2f %9.2f %9.2f\n", kind == Kind::None ? nameOf(kind) : name, kernelMs,
                show(discards), show(empty), show(evictions), show(prefetches));
  }

  cudaStream_t moves_ = nullptr, kernels_ = nullptr;
  float *sink_ = nullptr;
  char *onDevice_ = nullptr, *field_ = nullptr, *other_ = nullptr, *moved_ = nullptr;
};

} // namespace

int main() {
  Measurement measurement;
  measurement.readWhereEvicted();
  measurement.operationsBesideKernels();
  return 0;
}
