// SPDX-License-Identifier: Apache-2.0
/// \file
/// What kernels reach whose managed operands stay in host memory (preferred location there, accessed by the device):
/// reading, writing and updating 256 MiB, each word once, in launches of several sizes; and the same beside prefetches
/// and evictions of other memory, which a second thread makes in a context of its own. 512 MiB of managed memory.
/// Prints one line per case, GB/s of the kernel and of the moves beside it, medians of five. nvcc -O2 -std=c++20
/// -arch=sm_90 managed_hosted.cu -lcuda
#include "check.h"
#include "check_driver.h"
#include "timing.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t mebi = std::size_t{1} << 20, hostedBytes = 256 * mebi, movedBytes = 64 * mebi, moves = 4;
constexpr cudaMemLocation device{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};

enum class Access { Read, Write, Update };

__global__ void touch(Access access, float4 *words, std::size_t count, float *sink) {
  float sum = 0;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    float4 word = make_float4(1, 2, 3, 4);
    if (access != Access::Write)
      word = words[i];
    if (access != Access::Read)
      words[i] = make_float4(word.x + 1, word.y, word.z, word.w);
    sum += word.x;
  }
  if (sum == -1)
    *sink = sum;
}

double gigabytesPerSecond(std::size_t bytes, double milliseconds) {
  return static_cast<double>(bytes) / milliseconds / 1e6;
}

CUcontext createContext() {
  CUcontext context = nullptr, popped = nullptr;
  check(cuCtxCreate(&context, nullptr, 0, 0), "context");
  check(cuCtxPopCurrent(&popped), "context");
  return context;
}

void prefetch(char *at, std::size_t bytes, cudaMemLocation to, cudaStream_t stream) {
  check(cudaMemPrefetchAsync(at, bytes, to, 0, stream), "prefetch");
  check(cudaStreamSynchronize(stream), "prefetch");
}

/// Moves that go on for as long as the kernel runs.
class Beside {
public:
  Beside(CUcontext context, char *memory) : context_(context), memory_(memory) {}

  /// Returns the bytes a second that moved in the direction asked for while `kernel` ran.
  double run(bool up, const std::function<void()> &kernel) {
    std::atomic<bool> ends = false;
    std::atomic<bool> began = false;
    double rate = 0;
    std::thread other([&] {
      check(cuCtxSetCurrent(context_), "context");
      cudaStream_t stream = nullptr;
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
      for (std::size_t i = 0; i < moves; ++i)
        prefetch(memory_ + i * movedBytes, movedBytes, up ? host : device, stream);
      began = true;
      std::size_t moved = 0;
      const double start = nowMs();
      for (; moved < moves * movedBytes && !ends; moved += movedBytes)
        prefetch(memory_ + moved, movedBytes, up ? device : host, stream);
      const double ms = nowMs() - start;
      rate = gigabytesPerSecond(moved, ms);
      check(cudaStreamDestroy(stream), "stream");
    });
    while (!began)
      std::this_thread::yield();
    kernel();
    ends = true;
    other.join();
    return rate;
  }

private:
  CUcontext context_;
  char *memory_;
};

} // namespace

int main() {
  char *hosted = nullptr, *moved = nullptr;
  float *sink = nullptr;
  check(cudaMallocManaged(&hosted, hostedBytes), "managed");
  check(cudaMallocManaged(&moved, moves * movedBytes), "managed");
  check(cudaMalloc(&sink, sizeof(float)), "sink");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  prefetch(hosted, hostedBytes, device, stream);
  check(cudaMemsetAsync(hosted, 1, hostedBytes, stream), "fill");
  prefetch(moved, moves * movedBytes, device, stream);
  check(cudaMemsetAsync(moved, 1, moves * movedBytes, stream), "fill");
  prefetch(hosted, hostedBytes, host, stream);
  check(cudaMemAdvise(hosted, hostedBytes, cudaMemAdviseSetPreferredLocation, host), "advice");
  check(cudaMemAdvise(hosted, hostedBytes, cudaMemAdviseSetAccessedBy, device), "advice");
  cudaEvent_t start = nullptr, end = nullptr;
  check(cudaEventCreate(&start), "event");
  check(cudaEventCreate(&end), "event");
  const auto kernelMs = [&](Access access, int blocks) {
    check(cudaEventRecord(start, stream), "event");
    touch<<<blocks, 512, 0, stream>>>(access, reinterpret_cast<float4 *>(hosted), hostedBytes / sizeof(float4), sink);
    check(cudaEventRecord(end, stream), "event");
    check(cudaStreamSynchronize(stream), "kernel");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, end), "event");
    return static_cast<double>(ms);
  };
  Beside beside(createContext(), moved);
  std::printf("%-8s %6s %8s %22s %22s\n", "access", "blocks", "alone", "beside prefetches", "beside evictions");
  for (const Access access : {Access::Read, Access::Write, Access::Update})
    for (const int blocks : {132, 528, 2112}) {
      const char *name = access == Access::Read ? "read" : access == Access::Write ? "write" : "update";
      std::vector<double> alone, kernels[2], others[2];
      for (int run = 0; run < 6; ++run) {
        const double ms = kernelMs(access, blocks);
        if (run > 0)
          alone.push_back(gigabytesPerSecond(hostedBytes, ms));
        for (const bool up : {true, false}) {
          double kernel = 0;
          const double rate = beside.run(up, [&] { kernel = kernelMs(access, blocks); });
          if (run > 0) {
            kernels[up].push_back(gigabytesPerSecond(hostedBytes, kernel));
            others[up].push_back(rate);
          }
        }
      }
      std::printf("%-8s %6d %8.1f %10.1f, %10.1f %10.1f, %10.1f\n", name, blocks, median(alone), median(kernels[1]),
                  median(others[1]), median(kernels[0]), median(others[0]));
    }
  return 0;
}
