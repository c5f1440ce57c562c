// SPDX-License-Identifier: Apache-2.0
/// \file
/// Evictions of one allocation of managed memory by several threads, each in a context of its own: as it comes from the
/// driver, and cut into strips that are mappings of their own to the kernel (madvise with another flag for every second
/// one). How much the processor works meanwhile, whether cut memory still does all that it should, and at which speed;
/// what contexts take; the parts of a drop. 1.25 GiB of managed memory. Prints one line per case, medians of five; some
/// of one machine are in docs/decisions/12-managed-evictions.md. nvcc -O2 -std=c++20 -arch=sm_90
/// managed_strips.cu -lcuda
#include "check.h"
#include "check_driver.h"
#include "timing.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t mebi = std::size_t{1} << 20, total = 512 * mebi, upBytes = 256 * mebi;
constexpr CUmemLocation device{CU_MEM_LOCATION_TYPE_DEVICE, 0}, host{CU_MEM_LOCATION_TYPE_HOST, 0};

CUcontext createContext() {
  CUcontext context = nullptr, popped = nullptr;
  check(cuCtxCreate(&context, nullptr, 0, 0), "context");
  check(cuCtxPopCurrent(&popped), "context");
  return context;
}

class Lane {
public:
  explicit Lane(CUcontext context = nullptr) {
    if (context)
      check(cuCtxSetCurrent(context), "context");
    else
      check(cudaFree(nullptr), "the program's context");
    check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
  }
  void move(CUdeviceptr at, std::size_t bytes, CUmemLocation to) {
    check(cuMemPrefetchAsync(at, bytes, to, 0, stream), "prefetch");
    wait();
  }
  void fill(CUdeviceptr at, std::size_t bytes, unsigned char value = 1) {
    check(cuMemsetD8Async(at, value, bytes, stream), "fill");
    wait();
  }
  void discard(CUdeviceptr at, std::size_t bytes) {
    check(cuMemDiscardBatchAsync(&at, &bytes, 1, 0, stream), "discard");
    wait();
  }
  void wait() { check(cuStreamSynchronize(stream), "a stream"); }
  CUstream stream = nullptr;
};

CUdeviceptr managed(std::size_t bytes) {
  CUdeviceptr address = 0;
  check(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL), "managed memory");
  return address;
}

std::size_t freeMebi() {
  std::size_t free = 0, all = 0;
  check(cudaMemGetInfo(&free, &all), "free memory");
  return free / mebi;
}

/// Of the calling thread, so far.
double processorMs() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e3 +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-3;
}

/// How many mappings of the process lie in the range.
int mappings(CUdeviceptr at, std::size_t bytes) {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long long from = 0, to = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx", &from, &to) == 2 && from < at + bytes && at < to)
      ++found;
  }
  return found;
}

double timed(const auto &work) {
  const double start = nowMs();
  work();
  return nowMs() - start;
}

} // namespace

int main() {
  Lane main;
  std::vector<CUcontext> contexts;
  for (int i = 0; i < 4; ++i) {
    const std::size_t before = freeMebi();
    contexts.push_back(createContext());
    const std::size_t after = freeMebi();
    check(cuCtxPushCurrent(contexts.back()), "context");
    check(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 0), "limit");
    CUcontext popped = nullptr;
    check(cuCtxPopCurrent(&popped), "context");
    std::printf("a context takes %zu MiB, %zu without stacks\n", before - after, before - freeMebi());
  }
  const CUdeviceptr up = managed(upBytes);

  for (const std::size_t strip : {std::size_t{0}, 2 * mebi, 8 * mebi}) {
    const CUdeviceptr range = managed(total);
    if (strip)
      for (std::size_t at = 0; at < total; at += 2 * strip)
        if (madvise(reinterpret_cast<void *>(range + at), strip, MADV_RANDOM) != 0)
          std::perror("madvise");
    std::printf("strips of %zu MiB: %d mappings\n", strip / mebi, mappings(range, total));
    main.fill(range, total);
    for (const int threads : {1, 2, 3, 4})
      for (const std::size_t operation : {24 * mebi, 96 * mebi})
        for (const bool besideUp : {false, true}) {
          // The threads take chunks of each operation in turn.
          std::vector<double> ms, upMs, processor;
          for (int repeat = 0; repeat < 5; ++repeat) {
            main.move(range, total, device);
            main.move(up, upBytes, host);
            const std::size_t chunk = operation / (threads * mebi * 2) * mebi * 2;
            std::atomic<int> ready = 0;
            std::atomic<bool> over = false;
            std::atomic<double> worked = 0;
            std::atomic<std::size_t> next = 0, end = 0, done = 0;
            std::vector<std::thread> gang;
            for (int i = 0; i < threads; ++i)
              gang.emplace_back([&, i] {
                Lane lane(contexts[static_cast<std::size_t>(i)]);
                ++ready;
                while (!over) {
                  std::size_t at = next.load();
                  const std::size_t until = std::min(at + chunk, end.load());
                  if (at >= until || !next.compare_exchange_strong(at, until))
                    continue;
                  const double before = processorMs();
                  lane.move(range + at, until - at, host);
                  worked = worked + processorMs() - before;
                  done += until - at;
                }
              });
            while (ready < threads)
              std::this_thread::yield();
            double upTook = 0;
            std::thread other([&] {
              if (!besideUp)
                return;
              Lane lane;
              upTook = timed([&] {
                for (std::size_t at = 0; at < upBytes; at += 32 * mebi)
                  lane.move(up + at, 32 * mebi, device);
              });
            });
            const std::size_t all = total / operation * operation;
            ms.push_back(timed([&] {
              for (std::size_t at = 0; at < all; at += operation) {
                next = at;
                end = at + operation;
                while (done < at + operation)
                  std::this_thread::yield();
              }
            }));
            over = true;
            for (std::thread &thread : gang)
              thread.join();
            other.join();
            upMs.push_back(upTook);
            processor.push_back(worked);
          }
          const double operations = static_cast<double>(total / operation);
          std::printf("  %d threads, %2zu MiB at a time%s: %.1f GB/s, %.3f ms each, processor %.3f", threads,
                      operation / mebi, besideUp ? ", beside prefetches" : "",
                      operations * static_cast<double>(operation) / median(ms) * 1e-6, median(ms) / operations,
                      median(processor) / operations);
          if (besideUp)
            std::printf("; up %.1f GB/s", static_cast<double>(upBytes) / median(upMs) * 1e-6);
          std::printf("\n");
          std::fflush(stdout);
        }
    // What else is asked of such memory.
    std::vector<double> back, discards, memory, drops;
    for (int i = 0; i < 5; ++i) {
      main.move(range, total, host);
      back.push_back(timed([&] { main.move(range, total, device); }));
      discards.push_back(timed([&] { main.discard(range, total); }));
      memory.push_back(timed([&] { main.move(range, total, device); }));
      main.fill(range, total, static_cast<unsigned char>(7 + i));
    }
    std::printf("  all at once: up %.2f ms, discard %.2f, memory %.2f", median(back), median(discards), median(memory));
    std::vector<unsigned char> bytes(total);
    check(cuMemcpyDtoH(bytes.data(), range, total), "copy");
    const bool copied = std::all_of(bytes.begin(), bytes.end(), [](unsigned char b) { return b == 11; });
    main.move(range, total, host);
    const unsigned char *direct = reinterpret_cast<const unsigned char *>(range);
    const bool read = std::all_of(direct, direct + total, [](unsigned char b) { return b == 11; });
    std::memset(reinterpret_cast<void *>(range), 13, total); // by the processor
    main.move(range, total, device);
    check(cuMemcpyDtoH(bytes.data(), range, total), "copy");
    const bool written = std::all_of(bytes.begin(), bytes.end(), [](unsigned char b) { return b == 13; });
    check(cuMemAdvise(range, total, CU_MEM_ADVISE_SET_READ_MOSTLY, device), "advice");
    check(cuMemAdvise(range, total, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host), "advice");
    main.move(range, total, host);
    for (int i = 0; i < 5; ++i) {
      main.move(range, total, device);
      drops.push_back(timed([&] {
        main.move(range, total, host);
        check(cuMemAdvise(range, total, CU_MEM_ADVISE_UNSET_READ_MOSTLY, device), "advice");
        check(cuMemAdvise(range, total, CU_MEM_ADVISE_SET_READ_MOSTLY, device), "advice");
      }));
    }
    std::printf(", drop %.2f; copied %s, read %s, written %s by the processor", median(drops),
                copied ? "right" : "WRONG", read ? "right" : "WRONG", written ? "right" : "WRONG");
    const CUresult freed = cuMemFree(range);
    std::printf("; free: %d, mappings left %d\n", static_cast<int>(freed), mappings(range, total));
    std::fflush(stdout);
  }

  // A drop of what is read mostly, by its parts.
  const CUdeviceptr range = managed(total);
  main.fill(range, total);
  main.move(range, total, host);
  check(cuMemAdvise(range, total, CU_MEM_ADVISE_SET_READ_MOSTLY, device), "advice");
  check(cuMemAdvise(range, total, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host), "advice");
  const auto unset = [&](std::size_t bytes) {
    check(cuMemAdvise(range, bytes, CU_MEM_ADVISE_UNSET_READ_MOSTLY, device), "advice");
  };
  const auto set = [&](std::size_t bytes) {
    check(cuMemAdvise(range, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, device), "advice");
  };
  for (const std::size_t bytes : {8 * mebi, 24 * mebi, 64 * mebi}) {
    std::vector<double> bring, toHost, taking, giving, bringAgain;
    for (int i = 0; i < 15; ++i) {
      bring.push_back(timed([&] { main.move(range, bytes, device); }));
      toHost.push_back(timed([&] { main.move(range, bytes, host); }));
      taking.push_back(timed([&] { unset(bytes); }));
      giving.push_back(timed([&] { set(bytes); }));
      main.move(range, bytes, device);
      unset(bytes); // without a prefetch to the host
      set(bytes);
      bringAgain.push_back(timed([&] { main.move(range, bytes, device); }));
      unset(bytes);
      set(bytes);
    }
    std::printf(
        "read mostly, %zu MiB: up %.3f ms, to the host %.3f, advice taken back %.3f, given again %.3f; up after the "
        "advice alone %.3f\n",
        bytes / mebi, median(bring), median(toHost), median(taking), median(giving), median(bringAgain));
  }
  return 0;
}
