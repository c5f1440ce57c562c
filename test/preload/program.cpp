// SPDX-License-Identifier: Apache-2.0
/// \file
/// A program that uses the driver: preload_program WAY SCENARIO [NUMBER]. WAY is how it gets at the driver's functions:
/// linked, dlsym, or proc, as cudart does. What it prints is the same under pump-graph-run but where a scenario is
/// about the budget.
#include "test/preload/Loop.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

void rounds(int count, int evaluateEvery = 0) {
  Loop loop(4 * mebibyte);
  for (int i = 1; i <= count; ++i) {
    loop.round(0.25F * static_cast<float>(i % 3));
    if (evaluateEvery != 0 && i % evaluateEvery == 0)
      loop.evaluate();
  }
  loop.print();
}

/// Nanoseconds of a launch that does next to nothing.
void cost() {
  Loop loop(64);
  double best = 1e9;
  for (int burst = 0; burst < 50; ++burst) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i)
      loop.evaluate();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / 180);
  }
  std::printf("%.0f ns a launch\n", best);
}

void printInfo() {
  std::size_t free = 0, total = 0;
  MUST(memGetInfo(&free, &total));
  std::printf("free %zu total %zu\n", free / mebibyte, total / mebibyte);
}

/// As many blocks of 4 MiB as there is memory for, at most 100.
void fill() {
  printInfo();
  std::vector<CUdeviceptr> blocks;
  CUdeviceptr block = 0;
  CUresult result = CUDA_SUCCESS;
  while (blocks.size() < 100 && (result = memAlloc(&block, 4 * mebibyte)) == CUDA_SUCCESS)
    blocks.push_back(block);
  std::printf("%zu blocks, then %d\n", blocks.size(), static_cast<int>(result));
  printInfo();
  for (const CUdeviceptr each : blocks)
    MUST(memFree(each));
  printInfo();
  Loop(4 * mebibyte).print();
}

void mapped(std::size_t bytes) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = FIND(cuMemCreate, 10020)(&handle, bytes, &properties, 0);
  std::printf("create %d\n", static_cast<int>(result));
  printInfo();
  if (result != CUDA_SUCCESS)
    return;
  CUdeviceptr address = 0;
  MUST(FIND(cuMemAddressReserve, 10020)(&address, bytes, 0, 0, 0));
  MUST(FIND(cuMemMap, 10020)(address, bytes, 0, handle, 0));
  MUST(FIND(cuMemRelease, 10020)(handle));
  printInfo();
  MUST(FIND(cuMemUnmap, 10020)(address, bytes));
  printInfo();
}

/// Freed memory of one kind, and then memory of the other.
void mixed() {
  std::vector<CUdeviceptr> blocks(6);
  for (int round = 0; round < 3; ++round) {
    for (CUdeviceptr &block : blocks)
      MUST(memAlloc(&block, 4 * mebibyte));
    for (const CUdeviceptr block : blocks)
      MUST(memFree(block));
    mapped(20 * mebibyte);
  }
}

void capture() {
  Loop loop(4 * mebibyte);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  MUST(FIND(cuStreamBeginCapture, 10010)(loop.stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
  loop.evaluate();
  CUdeviceptr block = 0;
  MUST(memAlloc(&block, 4 * mebibyte));
  printInfo();
  MUST(FIND(cuStreamEndCapture, 10000)(loop.stream(), &graph));
  MUST(FIND(cuGraphInstantiateWithFlags, 11040)(&exec, graph, 0));
  for (int i = 0; i < 3; ++i)
    MUST(FIND(cuGraphLaunch, 10000)(exec, loop.stream()));
  MUST(memFree(block));
  printInfo();
  loop.print();
}

/// Two streams that wait for each other in each round, beside a third that waits for nobody.
void streams(int count) {
  Loop one(mebibyte), other(mebibyte), alone(mebibyte);
  CUevent there = nullptr, back = nullptr;
  MUST(FIND(cuEventCreate, 2000)(&there, CU_EVENT_DISABLE_TIMING));
  MUST(FIND(cuEventCreate, 2000)(&back, CU_EVENT_DISABLE_TIMING));
  for (int i = 0; i < count; ++i) {
    one.evaluate();
    MUST(FIND(cuEventRecord, 2000)(there, one.stream()));
    MUST(FIND(cuStreamWaitEvent, 3020)(other.stream(), there, 0));
    other.evaluate();
    alone.evaluate();
    MUST(FIND(cuEventRecord, 2000)(back, other.stream()));
    MUST(FIND(cuStreamWaitEvent, 3020)(one.stream(), back, 0));
    one.evaluate();
  }
  one.print();
}

/// A graph works in memory that is freed while it is captured.
void graphMemory() {
  Loop loop(mebibyte);
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr used = 0, next = 0, last = 0;
  MUST(memAlloc(&used, 4 * mebibyte));
  MUST(FIND(cuStreamBeginCapture, 10010)(loop.stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
  loop.set(used, mebibyte, 1.0F);
  MUST(memFree(used));
  MUST(FIND(cuStreamEndCapture, 10000)(loop.stream(), &graph));
  MUST(FIND(cuGraphInstantiateWithFlags, 11040)(&exec, graph, 0));
  MUST(FIND(cuGraphDestroy, 10000)(graph));
  MUST(memAlloc(&next, 4 * mebibyte));
  loop.set(next, mebibyte, 2.0F);
  MUST(FIND(cuGraphLaunch, 10000)(exec, loop.stream()));
  float value = 0;
  MUST(FIND(cuMemcpyDtoH, 3020)(&value, next, sizeof value));
  std::printf("%s, value %g\n", next == used ? "the same memory" : "other memory", value);
  MUST(FIND(cuGraphExecDestroy, 10000)(exec));
  MUST(memAlloc(&last, 4 * mebibyte));
  std::printf("%s\n", last == used ? "the graph's memory" : "other memory");
}

/// Allocations of both kinds, frees, launches, copies, captures and launches of graphs, as drawn.
class RandomProgram {
public:
  explicit RandomProgram(unsigned seed) : random_(seed) {
    CUmodule module = nullptr;
    MUST(FIND(cuModuleLoadData, 2000)(&module, ""));
    MUST(FIND(cuModuleGetFunction, 2000)(&scale_, module, "scaleAndAdd"));
    MUST(FIND(cuModuleGetFunction, 2000)(&set_, module, "setFloats"));
    for (CUstream &stream : streams_)
      MUST(FIND(cuStreamCreate, 2000)(&stream, CU_STREAM_NON_BLOCKING));
  }

  void run(int steps) {
    for (int step = 0; step < steps; ++step) {
      if (buffers_.size() < 2 || (buffers_.size() < 12 && draw(4) == 0))
        allocate();
      else if (draw(5) == 0)
        free(draw(buffers_.size()));
      else if (draw(25) == 0)
        capture();
      else
        work(streams_[draw(2)]);
    }
    while (!buffers_.empty())
      free(0);
  }

private:
  struct Buffer {
    CUdeviceptr address = 0;
    int count = 0;
    bool isAsync = false;
  };

  std::size_t draw(std::size_t count) { return random_() % count; }

  void launchSet(const Buffer &buffer, float value, CUstream stream) {
    Buffer given = buffer;
    void *parameters[] = {&given.address, &given.count, &value};
    MUST(launchKernel(set_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }

  void allocate() {
    const std::size_t bytes = (1 + draw(draw(3) == 0 ? 3000 : 40)) * 1024;
    Buffer buffer{0, static_cast<int>(bytes / sizeof(float)), draw(2) == 0};
    MUST(buffer.isAsync ? FIND(cuMemAllocAsync, 11020)(&buffer.address, bytes, streams_[0])
                        : memAlloc(&buffer.address, bytes));
    launchSet(buffer, static_cast<float>(draw(9)), streams_[0]);
    buffers_.push_back(buffer);
  }

  void free(std::size_t index) {
    const Buffer buffer = buffers_[index];
    print(buffer);
    buffers_.erase(buffers_.begin() + static_cast<std::ptrdiff_t>(index));
    MUST(buffer.isAsync ? FIND(cuMemFreeAsync, 11020)(buffer.address, streams_[draw(2)]) : memFree(buffer.address));
  }

  void work(CUstream stream) {
    Buffer to = buffers_[draw(buffers_.size())], from = buffers_[draw(buffers_.size())];
    const std::size_t count = static_cast<std::size_t>(std::min(to.count, from.count));
    switch (draw(4)) {
    case 0:
      MUST(FIND(cuMemcpyDtoDAsync, 3020)(to.address, from.address, count * sizeof(float), stream));
      break;
    case 1:
      MUST(FIND(cuMemsetD8Async, 3020)(to.address, 0, count, stream));
      break;
    default: {
      float factor = 0.5F;
      int floats = static_cast<int>(count);
      void *parameters[] = {&to.address, &from.address, &floats, &factor};
      MUST(launchKernel(scale_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
    }
    }
  }

  /// A graph that is launched as often as drawn. A buffer may go while it is captured, and another one come.
  void capture() {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    MUST(FIND(cuStreamBeginCapture, 10010)(streams_[1], CU_STREAM_CAPTURE_MODE_RELAXED));
    for (std::size_t left = 1 + draw(4); left-- > 0;)
      launchSet(buffers_[draw(buffers_.size())], static_cast<float>(draw(9)), streams_[1]);
    CUdeviceptr block = 0;
    MUST(memAlloc(&block, mebibyte));
    MUST(FIND(cuStreamEndCapture, 10000)(streams_[1], &graph));
    MUST(FIND(cuGraphInstantiateWithFlags, 11040)(&exec, graph, 0));
    for (std::size_t left = draw(3); left-- > 0;)
      MUST(FIND(cuGraphLaunch, 10000)(exec, streams_[1]));
    MUST(memFree(block));
  }

  void print(const Buffer &buffer) {
    std::vector<float> values(static_cast<std::size_t>(buffer.count));
    MUST(FIND(cuMemcpyDtoH, 3020)(values.data(), buffer.address, values.size() * sizeof(float)));
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      sum += values[i] * static_cast<double>(i % 5 + 1);
    std::printf("%d floats %.17g\n", buffer.count, sum);
  }

  std::mt19937 random_;
  CUfunction scale_ = nullptr, set_ = nullptr;
  CUstream streams_[2] = {};
  std::vector<Buffer> buffers_;
};

void random(unsigned seed) {
  RandomProgram(seed).run(300);
}

void nvml() {
  struct {
    unsigned long long total, free, used;
  } one{};
  struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
  } two{};
  CUdeviceptr block = 0;
  MUST(memAlloc(&block, 4 * mebibyte));
  void *const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  reinterpret_cast<int (*)(void *, void *)>(dlsym(library, "nvmlDeviceGetMemoryInfo"))(nullptr, &one);
  reinterpret_cast<int (*)(void *, void *)>(dlsym(library, "nvmlDeviceGetMemoryInfo_v2"))(nullptr, &two);
  std::printf("%llu %llu %llu\n%llu %llu %llu\n", one.total >> 20, one.free >> 20, one.used >> 20, two.total >> 20,
              two.free >> 20, two.used >> 20);
}

void tomorrow() {
  using Function = CUresult (*)(int, double, int *);
  int sum = 0;
  const auto function = find<Function>("cuLaunchTomorrow", CUDA_VERSION);
  std::printf("found\n");
  MUST(function(40, 1.0, &sum));
  std::printf("%d\n", sum);
}

int inChild(void (*work)()) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    work();
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

/// Kernels of a library that goes in between.
void closing() {
  void *const library = dlopen("libcuda.so.1", RTLD_NOW);
  const auto freeFunction = reinterpret_cast<PFN_cuMemFree_v3020>(dlsym(library, "cuMemFree_v2"));
  CUdeviceptr block = 0;
  MUST(memAlloc(&block, mebibyte));
  dlclose(library);
  MUST(freeFunction(block));
  rounds(20);
}

/// Each with a loop of its own; they allocate and free if they run whole rounds.
void threads(int count, bool wholeRounds) {
  std::vector<std::thread> all;
  std::vector<Loop *> loops;
  for (int i = 0; i < count; ++i)
    loops.push_back(new Loop(mebibyte));
  for (Loop *loop : loops)
    all.emplace_back([loop, wholeRounds] {
      CUcontext context = nullptr;
      MUST(FIND(cuDevicePrimaryCtxRetain, 7000)(&context, 0));
      MUST(FIND(cuCtxSetCurrent, 4000)(context));
      for (int i = 0; i < 200; ++i)
        wholeRounds ? loop->round(0.5F) : loop->evaluate();
    });
  for (std::thread &thread : all)
    thread.join();
  for (Loop *loop : loops)
    loop->print();
}

} // namespace

int main(int count, char **arguments) {
  if (count < 3)
    return 2;
  const std::string way = arguments[1], scenario = arguments[2];
  const int number = count > 3 ? std::atoi(arguments[3]) : 0;
  if (scenario == "fork-first")
    return inChild([] {
      openBy("proc");
      rounds(20);
    });
  openBy(way);
  if (scenario == "rounds")
    rounds(number);
  else if (scenario == "evaluated")
    rounds(number, 10);
  else if (scenario == "fill")
    fill();
  else if (scenario == "mapped")
    mapped(static_cast<std::size_t>(number) * mebibyte);
  else if (scenario == "cost")
    cost();
  else if (scenario == "streams")
    streams(number);
  else if (scenario == "nvml")
    nvml();
  else if (scenario == "mixed")
    mixed();
  else if (scenario == "capture")
    capture();
  else if (scenario == "tomorrow")
    tomorrow();
  else if (scenario == "closing")
    closing();
  else if (scenario == "threads")
    threads(number, false);
  else if (scenario == "allocating-threads")
    threads(number, true);
  else if (scenario == "fork") {
    rounds(3);
    return inChild([] { printInfo(); });
  } else if (scenario == "exec") {
    printInfo();
    std::fflush(stdout);
    if (inChild([] { execl("/proc/self/exe", "child", "proc", "rounds", "5", nullptr); }) != 0)
      return 3;
  } else if (scenario == "ipc") {
    CUdeviceptr block = 0;
    CUipcMemHandle handle{};
    MUST(memAlloc(&block, mebibyte));
    std::printf("ipc %d\n", static_cast<int>(FIND(cuIpcGetMemHandle, 4010)(&handle, block)));
    MUST(memFree(block));
    rounds(20);
  } else if (scenario == "devices") {
    CUcontext context = nullptr;
    rounds(5);
    MUST(FIND(cuDevicePrimaryCtxRetain, 7000)(&context, 1));
    rounds(5);
  } else if (scenario == "deepbind") {
    std::printf("%d\n", dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND) != nullptr);
    rounds(5);
  } else if (scenario == "graph-memory") {
    graphMemory();
  } else if (scenario == "apart") {
    std::printf("%d\n", dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW) != nullptr);
    rounds(5);
  } else if (scenario == "random") {
    random(static_cast<unsigned>(number));
  } else if (scenario == "exit") {
    return number;
  } else if (scenario == "abort") {
    rounds(2);
    std::abort();
  } else {
    return 2;
  }
  return 0;
}
