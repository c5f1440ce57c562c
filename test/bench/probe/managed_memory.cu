// SPDX-License-Identifier: Apache-2.0
/// \file
/// What the managed backend leans on, measured on one GPU with 512 MiB of managed memory: moves in both directions,
/// writes after a discard, copies of what is read mostly. Prints one line per figure; docs/results/probes.md holds
/// those of one machine. nvcc -O2 -arch=sm_90 managed_memory.cu
#include "check.h"

#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t bytes = std::size_t{512} << 20;
constexpr cudaMemLocation device{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};

__global__ void readAll(const float4 *data, std::size_t count, float *sink) {
  float sum = 0;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    sum += data[i].x;
  if (sum == 1.25e30f)
    *sink = sum;
}

__global__ void writeAll(float4 *data, std::size_t count) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    data[i] = float4{1, 2, 3, 4};
}

class Probe {
public:
  Probe() {
    check(cudaMallocManaged(&memory_, bytes), "managed memory");
    check(cudaMalloc(&sink_, sizeof(float)), "memory");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  }

  template <typename Work> void time(const char *what, Work work) {
    check(cudaDeviceSynchronize(), "before a measurement");
    const auto start = std::chrono::steady_clock::now();
    work();
    check(cudaDeviceSynchronize(), what);
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
    std::printf("%-46s %9.2f ms %8.1f GB/s\n", what, ms.count(), bytes / ms.count() * 1e-6);
  }

  void issue(cudaMemLocation to) { check(cudaMemPrefetchAsync(memory_, bytes, to, 0, stream_), "prefetch"); }
  void move(cudaMemLocation to, std::size_t piece = bytes) {
    for (std::size_t at = 0; at < bytes; at += piece) {
      check(cudaMemPrefetchAsync(memory_ + at, piece, to, 0, stream_), "prefetch");
      check(cudaStreamSynchronize(stream_), "prefetch");
    }
  }
  void moveBy(int threads, cudaMemLocation to) {
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i)
      all.emplace_back([=, this] {
        cudaStream_t own = nullptr;
        check(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "stream");
        check(cudaMemPrefetchAsync(memory_ + i * (bytes / threads), bytes / threads, to, 0, own), "prefetch");
        check(cudaStreamSynchronize(own), "prefetch");
      });
    for (std::thread &thread : all)
      thread.join();
  }
  void read() {
    readAll<<<1056, 256, 0, stream_>>>(reinterpret_cast<float4 *>(memory_), bytes / sizeof(float4), sink_);
  }
  void write() { writeAll<<<1056, 256, 0, stream_>>>(reinterpret_cast<float4 *>(memory_), bytes / sizeof(float4)); }
  void discard() {
    void *pointers[] = {memory_};
    std::size_t sizes[] = {bytes};
    check(cudaMemDiscardBatchAsync(pointers, sizes, 1, 0, stream_), "discard");
  }
  void advise(cudaMemoryAdvise advice, cudaMemLocation location) {
    check(cudaMemAdvise(memory_, bytes, advice, location), "advice");
  }

private:
  char *memory_ = nullptr;
  float *sink_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

} // namespace

int main() {
  Probe probe;
  probe.write();
  probe.time("to the host, the first time", [&] { probe.move(host); });
  probe.time("read by faults", [&] { probe.read(); });
  probe.time("to the host", [&] { probe.move(host); });
  probe.time("written by faults", [&] { probe.write(); });
  for (const int threads : {1, 2, 4, 8}) {
    std::printf("by %d threads: ", threads);
    probe.time("to the host", [&] { probe.moveBy(threads, host); });
    probe.move(device);
    probe.write();
  }
  for (const std::size_t mebibytes : {512, 64, 16, 8, 4, 2}) {
    probe.move(host);
    std::printf("%zu MiB at a time: ", mebibytes);
    probe.time("to the device", [&] { probe.move(device, mebibytes << 20); });
  }

  for (const std::size_t mebibytes : {512, 64, 16, 8, 4}) {
    probe.move(device);
    probe.write();
    std::printf("%zu MiB at a time: ", mebibytes);
    probe.time("to the host", [&] { probe.move(host, mebibytes << 20); });
  }
  for (const bool up : {true, false}) {
    const auto start = std::chrono::steady_clock::now();
    probe.issue(up ? device : host);
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
    std::printf("the call of a prefetch to the %s returns after %.2f ms\n", up ? "device" : "host", ms.count());
    check(cudaDeviceSynchronize(), "prefetch");
  }

  probe.move(device);
  probe.time("discard", [&] { probe.discard(); });
  probe.time("write after it", [&] { probe.write(); });
  probe.time("discard", [&] { probe.discard(); });
  probe.time("to the device after it", [&] { probe.move(device); });
  probe.time("write after that", [&] { probe.write(); });
  probe.move(host);
  probe.time("discard on the host", [&] { probe.discard(); });
  probe.time("to the device after it", [&] { probe.move(device); });
  probe.time("write after that", [&] { probe.write(); });

  probe.move(host);
  probe.advise(cudaMemAdviseSetReadMostly, device);
  probe.advise(cudaMemAdviseSetPreferredLocation, host);
  probe.time("read mostly: to the device", [&] { probe.move(device); });
  probe.time("to the host, where the copy is", [&] { probe.move(host); });
  probe.time("to the device, where a copy is", [&] { probe.move(device); });
  probe.time("advice taken back", [&] { probe.advise(cudaMemAdviseUnsetReadMostly, device); });
  probe.time("advice given again", [&] { probe.advise(cudaMemAdviseSetReadMostly, device); });
  probe.time("to the device after that", [&] { probe.move(device); });
  probe.advise(cudaMemAdviseUnsetReadMostly, device);
  probe.time("preferred on the host: read by faults", [&] { probe.read(); });
  probe.time("again", [&] { probe.read(); });
}
