// SPDX-License-Identifier: Apache-2.0
/// \file
/// What an agent's two threads cost each other: pieces of managed memory brought to the device, alone and while another
/// thread evicts or drops others, at once or in turns. 1.5 GiB of managed memory. Prints one line per case, medians of
/// five; docs/measurements.md holds those of one machine. nvcc -O2 -arch=sm_90 managed_lanes.cu
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t mebi = std::size_t{1} << 20, half = 768 * mebi;
constexpr cudaMemLocation device{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};

void check(cudaError_t status, const char *what) {
  if (status == cudaSuccess)
    return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

double nowMs() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A thread's own stream, waited for after each call, as an agent does.
class Lane {
public:
  Lane() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
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

/// `up` for the pieces of one half, `down` for those of the other, each in a thread; in turns if `turns`.
Times run(char *upMemory, char *downMemory, std::size_t piece, const Work &up, const Work &down, bool turns) {
  std::mutex mutex;
  std::atomic<int> ready = 0;
  Times times;
  const int threads = (up ? 1 : 0) + (down ? 1 : 0);
  const auto lane = [&](const Work &work, char *memory, double &ms) {
    Lane own;
    ++ready;
    while (ready < threads)
      std::this_thread::yield();
    const double startMs = nowMs();
    for (std::size_t at = 0; at < half; at += piece) {
      std::unique_lock<std::mutex> lock(mutex, std::defer_lock);
      if (turns)
        lock.lock();
      work(own, memory + at, piece);
    }
    ms = nowMs() - startMs;
  };
  std::vector<std::thread> all;
  if (up)
    all.emplace_back([&] { lane(up, upMemory, times.upMs); });
  if (down)
    all.emplace_back([&] { lane(down, downMemory, times.downMs); });
  for (std::thread &thread : all)
    thread.join();
  times.allMs = std::max(times.upMs, times.downMs);
  return times;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
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

  const auto measure = [&](const char *name, std::size_t piece, const Work &up, const Work &down, bool turns,
                           const std::function<void()> &prepare) {
    std::vector<double> all, ups, downs;
    for (int repeat = 0; repeat < 5; ++repeat) {
      prepare();
      check(cudaDeviceSynchronize(), "before a measurement");
      const Times times = run(upMemory, downMemory, piece, up, down, turns);
      all.push_back(times.allMs);
      ups.push_back(times.upMs);
      downs.push_back(times.downMs);
    }
    const double pieces = static_cast<double>(half) / static_cast<double>(piece);
    std::printf("%-40s %4zu MiB pieces: %7.2f ms in all", name, piece / mebi, median(all));
    if (up)
      std::printf("; up %7.2f ms, %6.3f each, %5.1f GB/s", median(ups), median(ups) / pieces,
                  static_cast<double>(half) / median(ups) * 1e-6);
    if (down)
      std::printf("; down %7.2f ms, %6.3f each, %5.1f GB/s", median(downs), median(downs) / pieces,
                  static_cast<double>(half) / median(downs) * 1e-6);
    std::printf("\n");
    std::fflush(stdout);
  };
  const auto hostAndDirty = [&] { // up: on the host; down: on the device, written
    main.prefetch(upMemory, half, host);
    main.prefetch(downMemory, half, device);
    main.fill(downMemory, half);
  };
  for (const std::size_t piece : {8 * mebi, 24 * mebi, 64 * mebi, 256 * mebi}) {
    measure("up alone", piece, bring, nullptr, false, hostAndDirty);
    measure("down alone", piece, nullptr, evict, false, hostAndDirty);
    measure("up beside evictions", piece, bring, evict, false, hostAndDirty);
    measure("up and evictions in turns", piece, bring, evict, true, hostAndDirty);
  }
  for (const std::size_t piece : {8 * mebi, 24 * mebi, 64 * mebi}) {
    measure("discards alone", piece, nullptr, discard, false, hostAndDirty);
    measure("up beside discards", piece, bring, discard, false, hostAndDirty);
    measure("memory for what was discarded", piece, bring, nullptr, false, [&] {
      main.prefetch(upMemory, half, device);
      main.discard(upMemory, half);
    });
  }
  for (char *memory : {upMemory, downMemory}) {
    main.prefetch(memory, half, host);
    check(cudaMemAdvise(memory, half, cudaMemAdviseSetReadMostly, device), "advice");
    check(cudaMemAdvise(memory, half, cudaMemAdviseSetPreferredLocation, host), "advice");
  }
  const auto readMostly = [&] {
    main.drop(upMemory, half);
    main.prefetch(downMemory, half, device);
  };
  for (const std::size_t piece : {8 * mebi, 24 * mebi, 64 * mebi, 256 * mebi}) {
    measure("read mostly: up alone", piece, bring, nullptr, false, readMostly);
    measure("drops alone", piece, nullptr, drop, false, readMostly);
    measure("read mostly: up beside drops", piece, bring, drop, false, readMostly);
    measure("read mostly: up and drops in turns", piece, bring, drop, true, readMostly);
  }
  return 0;
}
