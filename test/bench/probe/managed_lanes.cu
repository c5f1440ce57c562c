// SPDX-License-Identifier: Apache-2.0
/// \file
/// What an agent's two threads cost each other and the program: pieces of managed memory brought to the device, alone
/// and while another thread evicts or drops others, in one context, in one context in turns, and in contexts of their
/// own; evictions by several threads; kernels beside both. 1.5 GiB of managed memory. Prints one line per case, medians
/// of five (docs/decisions/12-managed-evictions.md). nvcc -O2 -std=c++20 -arch=sm_90 managed_lanes.cu -lcuda
#include "check.h"
#include "check_driver.h"
#include "timing.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t mebi = std::size_t{1} << 20, half = 768 * mebi;
constexpr cudaMemLocation device{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};

__global__ void copyAll(const float4 *from, float4 *to, std::size_t count) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    to[i] = from[i];
}

CUcontext createContext() {
  CUcontext context = nullptr, popped = nullptr;
  check(cuCtxCreate(&context, nullptr, 0, 0), "context");
  check(cuCtxPopCurrent(&popped), "context");
  return context;
}

/// A thread's own stream, waited for after each call, as an agent does. In the program's context unless one is given.
class Lane {
public:
  explicit Lane(CUcontext context = nullptr) {
    if (context)
      check(cuCtxSetCurrent(context), "context");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  }
  void prefetch(char *at, std::size_t bytes, cudaMemLocation to) {
    check(cudaMemPrefetchAsync(at, bytes, to, 0, stream_), "prefetch");
    wait();
  }
  void discard(char *at, std::size_t bytes) {
    void *pointers[] = {at};
    std::size_t sizes[] = {bytes};
    check(cudaMemDiscardBatchAsync(pointers, sizes, 1, 0, stream_), "discard");
    wait();
  }
  void drop(char *at, std::size_t bytes) {
    prefetch(at, bytes, host);
    check(cudaMemAdvise(at, bytes, cudaMemAdviseUnsetReadMostly, device), "advice");
    check(cudaMemAdvise(at, bytes, cudaMemAdviseSetReadMostly, device), "advice");
  }
  void fill(char *at, std::size_t bytes) {
    check(cudaMemsetAsync(at, 1, bytes, stream_), "fill");
    wait();
  }

private:
  void wait() { check(cudaStreamSynchronize(stream_), "a stream"); }
  cudaStream_t stream_ = nullptr;
};

struct Times {
  double allMs = 0, upMs = 0, downMs = 0; ///< until both, the one and the other had done all their pieces
};

using Work = std::function<void(Lane &, char *, std::size_t)>;

enum class Way { OneContext, InTurns, OwnContexts };
const char *const wayNames[] = {"", " in turns", " in contexts of their own"};

/// `up` for the pieces of one half, `down` for those of the other, each in a thread.
Times run(char *upMemory, char *downMemory, std::size_t piece, const Work &up, const Work &down, Way way) {
  static const CUcontext contexts[] = {createContext(), createContext()};
  std::mutex mutex;
  std::atomic<int> ready = 0;
  Times times;
  const int threads = (up ? 1 : 0) + (down ? 1 : 0);
  const auto lane = [&](const Work &work, char *memory, double &ms, CUcontext context) {
    Lane own(way == Way::OwnContexts ? context : nullptr);
    ++ready;
    while (ready < threads)
      std::this_thread::yield();
    const double startMs = nowMs();
    for (std::size_t at = 0; at < half; at += piece) {
      std::unique_lock<std::mutex> lock(mutex, std::defer_lock);
      if (way == Way::InTurns)
        lock.lock();
      work(own, memory + at, piece);
    }
    ms = nowMs() - startMs;
  };
  std::vector<std::thread> all;
  if (up)
    all.emplace_back([&] { lane(up, upMemory, times.upMs, contexts[0]); });
  if (down)
    all.emplace_back([&] { lane(down, downMemory, times.downMs, contexts[1]); });
  for (std::thread &thread : all)
    thread.join();
  times.allMs = std::max(times.upMs, times.downMs);
  return times;
}

} // namespace

int main() {
  char *upMemory = nullptr, *downMemory = nullptr;
  check(cudaMallocManaged(&upMemory, half), "managed memory");
  check(cudaMallocManaged(&downMemory, half), "managed memory");
  Lane main;
  main.fill(upMemory, half);
  main.fill(downMemory, half);

  const Work bring = [](Lane &lane, char *at, std::size_t bytes) { lane.prefetch(at, bytes, device); };
  const Work evict = [](Lane &lane, char *at, std::size_t bytes) { lane.prefetch(at, bytes, host); };
  const Work drop = [](Lane &lane, char *at, std::size_t bytes) { lane.drop(at, bytes); };
  const Work discard = [](Lane &lane, char *at, std::size_t bytes) { lane.discard(at, bytes); };

  const auto measure = [&](const char *name, std::size_t piece, const Work &up, const Work &down, Way way,
                           const std::function<void()> &prepare) {
    std::vector<double> all, ups, downs;
    for (int repeat = 0; repeat < 5; ++repeat) {
      prepare();
      check(cudaDeviceSynchronize(), "before a measurement");
      const Times times = run(upMemory, downMemory, piece, up, down, way);
      all.push_back(times.allMs);
      ups.push_back(times.upMs);
      downs.push_back(times.downMs);
    }
    const double pieces = static_cast<double>(half) / static_cast<double>(piece);
    std::printf("%-20s%-26s %4zu MiB: %7.2f ms in all", name, wayNames[static_cast<int>(way)], piece / mebi,
                median(all));
    if (up)
      std::printf("; up %7.2f ms, %6.3f each, %5.1f GB/s", median(ups), median(ups) / pieces,
                  static_cast<double>(half) / median(ups) * 1e-6);
    if (down)
      std::printf("; down %7.2f ms, %6.3f each, %5.1f GB/s", median(downs), median(downs) / pieces,
                  static_cast<double>(half) / median(downs) * 1e-6);
    std::printf("\n");
    std::fflush(stdout);
  };
  std::size_t freeBefore = 0, freeAfter = 0, total = 0;
  check(cudaMemGetInfo(&freeBefore, &total), "free memory");
  const CUcontext more[] = {createContext(), createContext()};
  check(cudaMemGetInfo(&freeAfter, &total), "free memory");
  std::printf("two contexts take %zu MiB\n", (freeBefore - freeAfter) / mebi);

  const auto hostAndDirty = [&] { // up: on the host; down: on the device, written
    main.prefetch(upMemory, half, host);
    main.prefetch(downMemory, half, device);
    main.fill(downMemory, half);
  };
  for (const std::size_t piece : {8 * mebi, 24 * mebi, 64 * mebi, 256 * mebi}) {
    measure("up", piece, bring, nullptr, Way::OneContext, hostAndDirty);
    measure("evictions", piece, nullptr, evict, Way::OneContext, hostAndDirty);
    for (const Way way : {Way::OneContext, Way::InTurns, Way::OwnContexts})
      measure("up and evictions", piece, bring, evict, way, hostAndDirty);
  }
  for (const std::size_t piece : {8 * mebi, 24 * mebi, 64 * mebi}) {
    measure("discards", piece, nullptr, discard, Way::OneContext, hostAndDirty);
    for (const Way way : {Way::OneContext, Way::OwnContexts})
      measure("up and discards", piece, bring, discard, way, hostAndDirty);
    measure("up after discards", piece, bring, nullptr, Way::OneContext, [&] {
      main.prefetch(upMemory, half, device);
      main.discard(upMemory, half);
    });
  }

  // Evictions of both halves, by a thread each.
  for (const bool own : {false, true})
    for (const int threads : {1, 2}) {
      std::vector<double> ms;
      for (int repeat = 0; repeat < 5; ++repeat) {
        hostAndDirty();
        std::vector<std::thread> all;
        const double start = nowMs();
        for (int i = 0; i < threads; ++i)
          all.emplace_back([&, i] {
            Lane lane(own ? more[i] : nullptr);
            for (std::size_t at = i * (half / threads); at < (i + 1) * (half / threads); at += 32 * mebi)
              lane.prefetch(downMemory + at, 32 * mebi, host);
          });
        for (std::thread &thread : all)
          thread.join();
        ms.push_back(nowMs() - start);
      }
      std::printf("evictions by %d threads%s: %.2f ms, %.1f GB/s\n", threads, own ? " in contexts of their own" : "",
                  median(ms), static_cast<double>(half) / median(ms) * 1e-6);
    }

  // What moving does to kernels that want all of the device's bandwidth.
  float4 *memory = nullptr;
  check(cudaMalloc(&memory, 2 * half), "memory");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  const auto kernels = [&] {
    const double start = nowMs();
    for (int i = 0; i < 300; ++i)
      copyAll<<<1056, 256, 0, stream>>>(memory, memory + half / sizeof(float4), half / sizeof(float4));
    check(cudaStreamSynchronize(stream), "kernels");
    return nowMs() - start;
  };
  kernels();
  for (const Way way : {Way::OneContext, Way::OwnContexts}) {
    std::vector<double> alone, beside;
    for (int repeat = 0; repeat < 5; ++repeat) {
      alone.push_back(kernels());
      hostAndDirty();
      std::thread movers([&] { run(upMemory, downMemory, 8 * mebi, bring, evict, way); });
      beside.push_back(kernels());
      movers.join();
    }
    std::printf("300 kernels: %.2f ms alone, %.2f beside up and evictions%s\n", median(alone), median(beside),
                wayNames[static_cast<int>(way)]);
  }

  for (char *range : {upMemory, downMemory}) {
    main.prefetch(range, half, host);
    check(cudaMemAdvise(range, half, cudaMemAdviseSetReadMostly, device), "advice");
    check(cudaMemAdvise(range, half, cudaMemAdviseSetPreferredLocation, host), "advice");
  }
  const auto readMostly = [&] {
    main.drop(upMemory, half);
    main.prefetch(downMemory, half, device);
  };
  for (const std::size_t piece : {8 * mebi, 24 * mebi, 64 * mebi, 256 * mebi}) {
    measure("read mostly: up", piece, bring, nullptr, Way::OneContext, readMostly);
    measure("drops", piece, nullptr, drop, Way::OneContext, readMostly);
    for (const Way way : {Way::OneContext, Way::InTurns, Way::OwnContexts})
      measure("up and drops", piece, bring, drop, way, readMostly);
  }
  return 0;
}
