// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a call that names several ranges of managed memory takes, beside one call for each: prefetches, evictions and
/// discards of pieces that do not lie side by side. 1.5 GiB of managed memory, in mappings of 2 MiB as an arena has
/// them. Prints one line per case, medians of seven. nvcc -O2 -std=c++20 -arch=sm_90 managed_batches.cu -lcuda
#include "check.h"
#include "timing.h"

#include <cuda_runtime.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

namespace {

constexpr std::size_t mebi = std::size_t{1} << 20, wholeBytes = 1536 * mebi;
cudaMemLocation device{cudaMemLocationTypeDevice, 0}, host{cudaMemLocationTypeHost, 0};
cudaStream_t stream = nullptr;

void wait() {
  check(cudaStreamSynchronize(stream), "a stream");
}

/// Every other piece of the memory, so that no two lie side by side.
std::vector<void *> everyOther(char *memory, std::size_t piece) {
  std::vector<void *> pieces;
  for (std::size_t at = 0; at + piece <= wholeBytes; at += 2 * piece)
    pieces.push_back(memory + at);
  return pieces;
}

void prefetchEach(std::vector<void *> pieces, std::size_t bytes, cudaMemLocation to, std::size_t atOnce) {
  std::vector<std::size_t> sizes(pieces.size(), bytes);
  std::size_t first = 0;
  for (std::size_t at = 0; at < pieces.size(); at += atOnce) {
    const std::size_t count = std::min(atOnce, pieces.size() - at);
    if (atOnce == 1)
      check(cudaMemPrefetchAsync(pieces[at], bytes, to, 0, stream), "prefetch");
    else
      check(cudaMemPrefetchBatchAsync(&pieces[at], &sizes[at], count, &to, &first, 1, 0, stream),
            "batch of prefetches");
    wait();
  }
}

void discardEach(std::vector<void *> pieces, std::size_t bytes, std::size_t atOnce) {
  std::vector<std::size_t> sizes(pieces.size(), bytes);
  for (std::size_t at = 0; at < pieces.size(); at += atOnce) {
    check(cudaMemDiscardBatchAsync(&pieces[at], &sizes[at], std::min(atOnce, pieces.size() - at), 0, stream),
          "batch of discards");
    wait();
  }
}

} // namespace

int main() {
  char *memory = nullptr;
  check(cudaMallocManaged(&memory, wholeBytes), "managed memory");
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  for (std::size_t at = 0; at < wholeBytes; at += 4 * mebi)
    if (madvise(memory + at, 2 * mebi, MADV_RANDOM) != 0)
      std::printf("one mapping, not many\n");
  check(cudaMemsetAsync(memory, 1, wholeBytes, stream), "fill");
  wait();

  const auto measure = [&](const char *name, std::size_t piece, std::size_t atOnce,
                           const std::function<void()> &prepare, const std::function<void()> &work) {
    std::vector<double> ms;
    for (int repeat = 0; repeat < 7; ++repeat) {
      prepare();
      check(cudaDeviceSynchronize(), "before a measurement");
      const double start = nowMs();
      work();
      ms.push_back(nowMs() - start);
    }
    const std::size_t pieces = everyOther(memory, piece).size();
    std::printf("%-10s %4zu MiB, %zu a call: %7.3f ms each, %6.1f GB/s\n", name, piece / mebi, atOnce,
                median(ms) / static_cast<double>(pieces), static_cast<double>(pieces * piece) / median(ms) * 1e-6);
    std::fflush(stdout);
  };
  for (const std::size_t piece : {2 * mebi, 8 * mebi, 16 * mebi, 24 * mebi, 64 * mebi}) {
    const std::vector<void *> pieces = everyOther(memory, piece);
    const auto toDevice = [&] { // written, for what was discarded has nothing to move
      prefetchEach(pieces, piece, device, 1);
      check(cudaMemsetAsync(memory, 1, wholeBytes, stream), "fill");
      wait();
    };
    const auto toHost = [&] {
      toDevice();
      prefetchEach(pieces, piece, host, 1);
    };
    for (const std::size_t atOnce : {1, 2, 4, 8}) {
      measure("prefetch", piece, atOnce, toHost, [&] { prefetchEach(pieces, piece, device, atOnce); });
      measure("evict", piece, atOnce, toDevice, [&] { prefetchEach(pieces, piece, host, atOnce); });
      measure("discard", piece, atOnce, toDevice, [&] { discardEach(pieces, piece, atOnce); });
    }
  }
  return 0;
}
