// SPDX-License-Identifier: Apache-2.0
/// \file
/// Programs of several threads that a plan could get wrong, or hang on: preload_threads SCENARIO ROUNDS. What they
/// print is the same under pump-graph-run.
#include "test/preload/Loop.h"

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <thread>

namespace {

using std::chrono::milliseconds;

/// With the context of the others.
template <typename Work> std::thread threadOf(const Work &work) {
  return std::thread([work] {
    CUcontext context = nullptr;
    MUST(FIND(cuDevicePrimaryCtxRetain, 7000)(&context, 0));
    MUST(FIND(cuCtxSetCurrent, 4000)(context));
    work();
  });
}

/// Memory that the program maps itself, at its own addresses.
class Mapped {
public:
  Mapped() {
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    MUST(FIND(cuMemCreate, 10020)(&handle_, bytes, &properties_, 0));
    MUST(FIND(cuMemAddressReserve, 10020)(&address_, bytes, 0, 0, 0));
  }
  CUresult map() {
    const CUmemAccessDesc access{properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUresult result = FIND(cuMemMap, 10020)(address_, bytes, 0, handle_, 0);
    std::this_thread::sleep_for(milliseconds(2)); // nobody reaches it yet
    return result == CUDA_SUCCESS ? FIND(cuMemSetAccess, 10020)(address_, bytes, &access, 1) : result;
  }
  void unmap() { MUST(FIND(cuMemUnmap, 10020)(address_, bytes)); }
  CUdeviceptr address() const { return address_; }

private:
  static constexpr std::size_t bytes = 2 * mebibyte;

  CUmemAllocationProp properties_{};
  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr address_ = 0;
};

/// Memory is mapped and unmapped all the time, while rounds are planned.
void unmaps(int count) {
  Mapped memory;
  Loop loop(4 * mebibyte);
  std::atomic<bool> isOver = false;
  std::thread other = threadOf([&] {
    while (!isOver) {
      MUST(memory.map());
      memory.unmap();
    }
  });
  for (int i = 0; i < count; ++i) {
    loop.round(0.5F);
    std::this_thread::sleep_for(milliseconds(2));
  }
  isOver = true;
  other.join();
  for (int i = 0; i < count; ++i)
    loop.round(0.25F);
  loop.print();
}

/// Rounds with a table, at an address that a thread gives up while another one takes it.
void takenOver(int count, CUdeviceptr table, const std::function<void()> &giveUp, const std::function<bool()> &take,
               const std::function<void(Loop &)> &fill) {
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addThroughTable");
  std::thread other = threadOf(giveUp);
  std::this_thread::sleep_for(milliseconds(50)); // it is about to return
  while (!take())
    std::this_thread::yield();
  other.join();
  fill(loop);
  for (int i = 0; i < count; ++i)
    loop.roundThrough(add, table);
  loop.print();
}

void registered(int count) {
  auto *const table = static_cast<CUdeviceptr *>(std::aligned_alloc(4096, 4096));
  const auto take = [&] { return FIND(cuMemHostRegister, 6050)(table, 4096, 0) == CUDA_SUCCESS; };
  take();
  takenOver(
      count, reinterpret_cast<CUdeviceptr>(table), [&] { MUST(FIND(cuMemHostUnregister, 4000)(table)); }, take,
      [&](Loop &loop) { *table = loop.sum(); });
}

void mapped(int count) {
  Mapped memory;
  MUST(memory.map());
  takenOver(
      count, memory.address(), [&] { memory.unmap(); }, [&] { return memory.map() == CUDA_SUCCESS; },
      [&](Loop &loop) {
        CUdeviceptr to = memory.address(), word = loop.sum();
        loop.callWith(kernel("storeWord"), {&to, &word});
      });
}

constexpr int queueLength = 16; // PUMPGRAPH_FAKE_QUEUE

/// In each round a stream is full of work, which waits until another thread has called the driver. `fill` calls it once
/// more.
template <typename Fill> void fullQueue(int count, const Fill &fill) {
  Loop loop(4 * mebibyte);
  const CUfunction wait = kernel("waitForHost"), set = kernel("setFloats");
  void *pinned = nullptr;
  MUST(FIND(cuMemHostAlloc, 2020)(&pinned, sizeof(std::atomic<int>), CU_MEMHOSTALLOC_DEVICEMAP));
  auto *const flag = new (pinned) std::atomic<int>(0);
  std::atomic<int> begun = 0;
  CUdeviceptr target = 0;
  int number = 1;
  float value = 1;
  MUST(memAlloc(&target, mebibyte));
  std::thread other = threadOf([&] {
    for (int i = 1; i <= count; ++i) {
      while (begun < i)
        std::this_thread::yield();
      std::this_thread::sleep_for(milliseconds(5)); // the stream is full
      std::size_t free = 0, total = 0;
      MUST(memGetInfo(&free, &total));
      *flag = i;
    }
  });
  const auto launch = [&](int place) {
    CUdeviceptr at = target + static_cast<CUdeviceptr>(place) * sizeof value;
    loop.callWith(set, {&at, &number, &value});
  };
  for (int i = 1; i <= count; ++i) {
    loop.round(0.5F);
    MUST(FIND(cuCtxSynchronize, 2000)());
    *flag = 0;
    loop.callWith(wait, {&pinned});
    ++begun;
    for (int place = 1; place < queueLength; ++place)
      launch(place);
    fill(loop, launch);
  }
  other.join();
  loop.print();
}

void recordsAtFullQueue(int count) {
  CUevent event = nullptr;
  MUST(FIND(cuEventCreate, 2000)(&event, CU_EVENT_DISABLE_TIMING));
  fullQueue(count, [&](Loop &loop, const auto &) { MUST(FIND(cuEventRecord, 2000)(event, loop.stream())); });
}

void launchesAtFullQueue(int count) {
  fullQueue(count, [](Loop &, const auto &launch) { launch(queueLength); });
}

const Scenarios scenarios{
    {"unmaps", unmaps},
    {"registered", registered},
    {"mapped", mapped},
    {"records-at-full-queue", recordsAtFullQueue},
    {"launches-at-full-queue", launchesAtFullQueue},
};

} // namespace

int main(int count, char **arguments) {
  return runScenario(scenarios, count, arguments);
}
