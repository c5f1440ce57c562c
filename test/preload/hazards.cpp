// SPDX-License-Identifier: Apache-2.0
/// \file
/// Programs whose rounds a plan could get wrong, or hang on: preload_hazards SCENARIO ROUNDS. What they print is the
/// same under pump-graph-run.
#include "test/preload/Loop.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <thread>
#include <vector>

namespace {

/// A kernel finds the loop's memory in a table, which is filled ahead of a round.
void table(int count, int filledAt, bool isPinned) {
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addThroughTable");
  void *pinned = nullptr;
  MUST(FIND(cuMemHostAlloc, 2020)(&pinned, sizeof(CUdeviceptr), 0));
  // Aligned where it comes to lie, and not where it comes from, unless it is pinned.
  alignas(8) char pageable[12];
  void *const source = isPinned ? pinned : pageable + 4;
  const CUdeviceptr address = loop.sum();
  std::memcpy(source, &address, sizeof address);
  CUdeviceptr table = 0;
  MUST(memAlloc(&table, 2 * mebibyte));
  for (int i = 0; i < count; ++i) {
    if (i == filledAt)
      MUST(FIND(cuMemcpyHtoD, 3020)(table, source, sizeof address));
    loop.round(0.5F, [&] {
      if (i >= filledAt)
        loop.call(add, table, 4 * mebibyte, 1.0F);
    });
  }
  loop.print();
}

/// The same with a table in host memory.
void hostTable(int count) {
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addThroughTable");
  void *table = nullptr;
  MUST(FIND(cuMemHostAlloc, 2020)(&table, sizeof(CUdeviceptr), CU_MEMHOSTALLOC_DEVICEMAP));
  *static_cast<CUdeviceptr *>(table) = loop.sum();
  for (int i = 0; i < count; ++i)
    loop.round(0.5F, [&] { loop.call(add, reinterpret_cast<CUdeviceptr>(table), 4 * mebibyte, 1.0F); });
  loop.print();
}

/// A kernel gets an address ahead of the memory, and the distance.
void beside(int count) {
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addBeside");
  constexpr std::size_t distance = 4096;
  for (int i = 0; i < count; ++i)
    loop.round(0.5F, [&] { loop.call(add, loop.sum() - distance, distance + 2 * mebibyte, 1.0F); });
  loop.print();
}

/// A kernel whose last parameter is a struct of which the first word alone is written.
[[gnu::noinline]] void launchWithTail(Loop &loop, CUfunction function) {
  struct Tail {
    std::uint64_t used;
    std::array<std::uint64_t, 1023> unused;
  };
  alignas(Tail) std::array<char, sizeof(Tail)> tail; // as it is on the stack
  const std::uint64_t used = 1;
  std::memcpy(tail.data(), &used, sizeof used);
  asm volatile("" : : "r"(tail.data()) : "memory");
  CUdeviceptr sum = loop.sum();
  loop.callWith(function, {&sum, tail.data()});
}

/// rounds() with such a kernel in each.
void tails(int count) {
  Loop loop(4 * mebibyte);
  const CUfunction function = kernel("setWithTail");
  for (int i = 1; i <= count; ++i) {
    loop.round(0.25F * static_cast<float>(i % 3));
    launchWithTail(loop, function);
  }
  loop.print();
}

/// With a kernel whose pointer is in a packed struct, at four bytes off eight.
void packed(int count) {
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addPacked");
  const auto addOne = [&](CUdeviceptr to) {
    std::array<char, 16> given{};
    const float value = 1;
    std::memcpy(given.data() + 4, &to, sizeof to);
    std::memcpy(given.data() + 12, &value, sizeof value);
    loop.callWith(add, {given.data()});
  };
  for (int i = 0; i < count; ++i)
    loop.round(0.5F, [&] {
      addOne(loop.sum());
      addOne(loop.sum() + 2 * mebibyte); // in its other page
    });
  loop.print();
}

/// Kernels are unloaded in the middle of a round.
void reload(int count) {
  Loop loop(4 * mebibyte);
  CUmodule module = nullptr;
  MUST(FIND(cuModuleLoadData, 2000)(&module, ""));
  for (int i = 0; i < count; ++i) {
    loop.round(0.5F, [&] {
      if (i == count / 2)
        MUST(FIND(cuModuleUnload, 2000)(module));
    });
    if (i == count / 2)
      loop.evaluate();
  }
  loop.print();
}

/// Memory is shared in the middle of a round.
void aside(int count) {
  Loop loop(4 * mebibyte);
  CUipcMemHandle handle{};
  for (int i = 0; i < count; ++i)
    loop.round(0.5F, [&] {
      if (i == count - 2)
        std::printf("ipc %d\n", static_cast<int>(FIND(cuIpcGetMemHandle, 4010)(&handle, loop.sum())));
    });
  loop.print();
}

/// The device waits for the host from a round on.
void hostFunction(int count) {
  Loop loop(4 * mebibyte);
  int calls = 0;
  for (int i = 0; i < count; ++i)
    loop.round(0.5F, [&] {
      if (i >= count / 2)
        MUST(FIND(cuLaunchHostFunc, 10000)(loop.stream(), [](void *sum) { ++*static_cast<int *>(sum); }, &calls));
    });
  loop.print();
  std::printf("%d\n", calls);
}

/// Between two rounds the address of the loop's memory comes into a table, which all rounds use.
template <typename Write> void lateAddress(int count, const Write &write) {
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addThroughTable");
  CUdeviceptr table = 0;
  MUST(memAlloc(&table, 2 * mebibyte));
  loop.set(table, mebibyte / 2, 0.0F);
  for (int i = 0; i < count; ++i) {
    if (i == count / 2)
      write(loop, table);
    loop.round(0.5F, [&] { loop.call(add, table, 4 * mebibyte, 1.0F); });
  }
  loop.print();
}

void storeWord(Loop &loop, CUdeviceptr to, CUdeviceptr word) {
  loop.callWith(kernel("storeWord"), {&to, &word});
}

void store(Loop &loop, CUdeviceptr table) {
  storeWord(loop, table, loop.sum());
}

void storeByGraph(Loop &loop, CUdeviceptr table) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  MUST(FIND(cuStreamBeginCapture, 10010)(loop.stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
  store(loop, table);
  MUST(FIND(cuStreamEndCapture, 10000)(loop.stream(), &graph));
  MUST(FIND(cuGraphInstantiateWithFlags, 11040)(&exec, graph, 0));
  MUST(FIND(cuGraphLaunch, 10000)(exec, loop.stream()));
  MUST(FIND(cuCtxSynchronize, 2000)());
  MUST(FIND(cuGraphExecDestroy, 10000)(exec));
  MUST(FIND(cuGraphDestroy, 10000)(graph));
}

void copyRow(Loop &loop, CUdeviceptr table) {
  const CUdeviceptr address = loop.sum();
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = &address;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = table;
  copy.WidthInBytes = sizeof address;
  copy.Height = 1;
  MUST(FIND(cuMemcpy2DAsync, 3020)(&copy, loop.stream()));
}

void writeValue(Loop &loop, CUdeviceptr table) {
  MUST(FIND(cuStreamWriteValue64, 11070)(loop.stream(), table, loop.sum(), 0));
}

/// The address of a table in pinned memory comes into device memory.
template <typename Write> void hostTableBehind(int count, int filledAt, const Write &write) {
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addThroughTwoTables");
  void *pinned = nullptr;
  CUdeviceptr table = 0;
  MUST(FIND(cuMemHostAlloc, 2020)(&pinned, sizeof(CUdeviceptr), CU_MEMHOSTALLOC_DEVICEMAP));
  *static_cast<CUdeviceptr *>(pinned) = loop.sum();
  MUST(memAlloc(&table, 2 * mebibyte));
  loop.set(table, mebibyte / 2, 0.0F);
  for (int i = 0; i < count; ++i) {
    if (i == filledAt)
      write(loop, table, reinterpret_cast<CUdeviceptr>(pinned));
    loop.round(0.5F, [&] { loop.call(add, table, 4 * mebibyte, 1.0F); });
  }
  loop.print();
}

void upload(Loop &, CUdeviceptr to, CUdeviceptr word) {
  MUST(FIND(cuMemcpyHtoD, 3020)(to, &word, sizeof word));
}

/// Memory of the process, whose address is in device memory, is pinned and gets an address later.
void hostTablePinnedLater(int count) {
  constexpr std::size_t page = 4096;
  alignas(page) static std::array<CUdeviceptr, page / sizeof(CUdeviceptr)> host{};
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addThroughTwoTables");
  CUdeviceptr table = 0;
  MUST(memAlloc(&table, 2 * mebibyte));
  loop.set(table, mebibyte / 2, 0.0F);
  storeWord(loop, table, reinterpret_cast<CUdeviceptr>(host.data()));
  for (int i = 0; i < count; ++i) {
    if (i == count / 2) {
      MUST(FIND(cuMemHostRegister, 6050)(host.data(), page, 0));
      host[0] = loop.sum();
    }
    loop.round(0.5F, [&] { loop.call(add, table, 4 * mebibyte, 1.0F); });
  }
  loop.print();
}

/// The address is in a packed struct, at four bytes off eight, in two of the pieces in which memory is searched.
template <typename Write> void packedTable(int count, int filledAt, const Write &write) {
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addThroughPackedTable");
  constexpr std::size_t bytes = 6 * mebibyte;
  CUdeviceptr memory = 0;
  MUST(memAlloc(&memory, bytes));
  loop.set(memory, static_cast<int>(bytes / sizeof(float)), 0.0F);
  const CUdeviceptr table = memory + 4 * mebibyte - 8;
  for (int i = 0; i < count; ++i) {
    if (i == filledAt)
      write(loop, table + 4, loop.sum());
    loop.round(0.5F, [&] { loop.call(add, table, 4 * mebibyte, 1.0F); });
  }
  loop.print();
}

/// Memory of the process is registered where a part of older memory has been so.
void registeredOverOlder(int count) {
  constexpr std::size_t page = 4096, bytes = 8 * page;
  const auto map = [](void *at) {
    return static_cast<char *>(
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0));
  };
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addThroughTable");
  char *const older = map(nullptr);
  MUST(FIND(cuMemHostRegister, 6050)(older + page, page, 0));
  munmap(older, bytes);
  char *const table = map(older) + 4 * page;
  MUST(FIND(cuMemHostRegister, 6050)(older, bytes, 0));
  *reinterpret_cast<CUdeviceptr *>(table) = loop.sum();
  for (int i = 0; i < count; ++i)
    loop.roundThrough(add, reinterpret_cast<CUdeviceptr>(table));
  loop.print();
}

/// A kernel gets no table in the first rounds, and one in pinned memory later.
void lateHostTable(int count) {
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addThroughTable");
  void *table = nullptr;
  MUST(FIND(cuMemHostAlloc, 2020)(&table, sizeof(CUdeviceptr), CU_MEMHOSTALLOC_DEVICEMAP));
  *static_cast<CUdeviceptr *>(table) = loop.sum();
  for (int i = 0; i < count; ++i)
    loop.round(0.5F,
               [&] { loop.call(add, i < count / 2 ? 0 : reinterpret_cast<CUdeviceptr>(table), 4 * mebibyte, 1.0F); });
  loop.print();
}

/// The table is in memory of the process that nobody has pinned.
void pageableTable(int count) {
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addThroughTable");
  const std::vector<CUdeviceptr> table(100, loop.sum());
  for (int i = 0; i < count; ++i)
    loop.round(0.5F, [&] { loop.call(add, reinterpret_cast<CUdeviceptr>(table.data()), 4 * mebibyte, 1.0F); });
  MUST(FIND(cuCtxSynchronize, 2000)());
  loop.print();
}

/// The table is in memory that the program maps itself, and that a kernel has filled: a packed struct in two mappings
/// side by side.
void mappedTable(int count, bool isHiddenFromOther) {
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addThroughPackedTable");
  constexpr std::size_t bytes = 2 * mebibyte;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr memory = 0;
  MUST(FIND(cuMemAddressReserve, 10020)(&memory, 2 * bytes, 0, 0, 0));
  for (const CUdeviceptr at : {memory, memory + bytes}) {
    CUmemGenericAllocationHandle handle = 0;
    MUST(FIND(cuMemCreate, 10020)(&handle, bytes, &properties, 0));
    MUST(FIND(cuMemMap, 10020)(at, bytes, 0, handle, 0));
  }
  MUST(FIND(cuMemSetAccess, 10020)(memory, 2 * bytes, &access, 1));
  if (isHiddenFromOther) {
    const CUmemAccessDesc none{{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    MUST(FIND(cuMemSetAccess, 10020)(memory, 2 * bytes, &none, 1));
  }
  const CUdeviceptr table = memory + bytes - 8;
  storeWord(loop, table + 4, loop.sum());
  for (int i = 0; i < count; ++i)
    loop.roundThrough(add, table);
  loop.print();
}

/// A kernel beside the rounds waits until the program sets a flag behind them.
void waits(int count) {
  constexpr std::size_t loops = 3;
  std::vector<Loop> all;
  for (std::size_t i = 0; i < loops; ++i)
    all.emplace_back(4 * mebibyte);
  CUstream aside = nullptr;
  void *flag = nullptr;
  MUST(FIND(cuStreamCreate, 2000)(&aside, CU_STREAM_NON_BLOCKING));
  MUST(FIND(cuMemHostAlloc, 2020)(&flag, sizeof(std::atomic<int>), CU_MEMHOSTALLOC_DEVICEMAP));
  auto *const isOver = new (flag) std::atomic<int>(0);
  void *parameters[] = {&flag};
  MUST(launchKernel(kernel("waitForHost"), 1, 1, 1, 1, 1, 1, 0, aside, parameters, nullptr));
  for (int i = 0; i < count; ++i)
    for (Loop &loop : all)
      loop.evaluate();
  *isOver = 1;
  MUST(FIND(cuStreamSynchronize, 2000)(aside));
  for (Loop &loop : all)
    loop.print();
}

/// A kernel gets an address ahead of a small allocation, where another one has been.
void besideSmall(int count) {
  Loop loop(4 * mebibyte);
  const CUfunction add = kernel("addBeside");
  constexpr std::size_t bytes = 4096;
  CUdeviceptr gap = 0, used = 0;
  MUST(memAlloc(&gap, bytes));
  MUST(memAlloc(&used, bytes));
  MUST(memFree(gap));
  loop.set(used, 4, 0.0F);
  for (int i = 0; i < count; ++i) {
    CUdeviceptr to = used, from = used;
    std::size_t number = 1;
    float factor = 1;
    loop.callWith(kernel("addSparsely"), {&to, &from, &number, &factor});
    loop.round(0.5F, [&] { loop.call(add, used - bytes / 2, bytes / 2, 1.0F); });
  }
  loop.print();
  float value = 0;
  MUST(FIND(cuMemcpyDtoH, 3020)(&value, used, sizeof value));
  std::printf("%g\n", value);
}

/// Two streams of which the second one waits for an event that nobody has recorded. Its handle was another event's.
void destroyedEvents(int count) {
  constexpr std::size_t bytes = 4 * mebibyte;
  const CUfunction set = kernel("setSparsely"), add = kernel("addSparsely");
  std::array<CUstream, 2> streams{};
  std::array<CUdeviceptr, 2> sums{};
  const auto launch = [](CUfunction function, CUstream stream, std::vector<void *> parameters) {
    MUST(launchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters.data(), nullptr));
  };
  std::size_t number = bytes;
  float factor = 0.5F;
  for (std::size_t i = 0; i < 2; ++i) {
    MUST(FIND(cuStreamCreate, 2000)(&streams[i], CU_STREAM_NON_BLOCKING));
    MUST(memAlloc(&sums[i], bytes));
    launch(set, streams[i], {&sums[i], &number, &factor});
  }
  for (int round = 0; round < count; ++round) {
    CUevent event = nullptr;
    for (std::size_t i = 0; i < 2; ++i) {
      CUdeviceptr own = 0;
      MUST(FIND(cuEventCreate, 2000)(&event, CU_EVENT_DISABLE_TIMING));
      if (i == 1)
        MUST(FIND(cuStreamWaitEvent, 3020)(streams[i], event, 0));
      MUST(FIND(cuMemAllocAsync, 11020)(&own, bytes, streams[i]));
      float value = static_cast<float>(round) + static_cast<float>(i) * 100;
      for (int repeated = 0; repeated < 4; ++repeated)
        launch(set, streams[i], {&own, &number, &value});
      launch(add, streams[i], {&sums[i], &own, &number, &factor});
      if (i == 0)
        MUST(FIND(cuEventRecord, 2000)(event, streams[i]));
      MUST(FIND(cuMemFreeAsync, 11020)(own, streams[i]));
      MUST(FIND(cuEventDestroy, 4000)(event));
    }
  }
  MUST(FIND(cuCtxSynchronize, 2000)());
  for (const CUdeviceptr sum : sums) {
    float value = 0;
    MUST(FIND(cuMemcpyDtoH, 3020)(&value, sum, sizeof value));
    std::printf("%.9g\n", value);
  }
}

/// The context ends in the middle of a round, and another one begins.
void release(int count) {
  CUcontext context = nullptr;
  Loop loop(4 * mebibyte);
  for (int i = 0; i < count; ++i)
    loop.round(0.5F, [&] {
      if (i != count - 1)
        return;
      MUST(FIND(cuDevicePrimaryCtxRelease, 11000)(0));
      MUST(FIND(cuDevicePrimaryCtxRetain, 7000)(&context, 0));
      Loop(4 * mebibyte).print();
      std::exit(0);
    });
}

void descriptor(int count) {
  Loop loop(4 * mebibyte);
  CUtensorMap map;
  const std::array<cuuint64_t, 2> sizes{16, 16};
  const std::array<cuuint32_t, 2> box{16, 16};
  for (int i = 0; i < count; ++i)
    loop.round(0.5F, [&] {
      if (i == count - 1)
        MUST(FIND(cuTensorMapEncodeTiled, 12000)(
            &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, reinterpret_cast<void *>(loop.sum()), sizes.data(), sizes.data(),
            box.data(), box.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
            CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    });
  loop.print();
}

/// A library is opened, or a function of it looked up, in the middle of a round.
template <typename Open> void library(int count, const Open &open) {
  Loop loop(4 * mebibyte);
  for (int i = 0; i < count; ++i)
    loop.round(0.5F, [&] {
      if (i == count - 1)
        open();
    });
  loop.print();
}

std::atomic<bool> constructs = false, hasRounds = false;

/// The constructor of a library, which keeps the loader's lock, calls the driver until rounds are planned.
void construct() {
  constructs = true;
  while (!hasRounds) {
    std::size_t free = 0, total = 0;
    MUST(memGetInfo(&free, &total));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void constructor(int count) {
  Loop loop(4 * mebibyte);
  char address[32];
  std::snprintf(address, sizeof address, "%zu", reinterpret_cast<std::size_t>(&construct));
  setenv("PUMPGRAPH_CONSTRUCTOR", address, 1);
  std::thread other([] {
    CUcontext context = nullptr;
    MUST(FIND(cuDevicePrimaryCtxRetain, 7000)(&context, 0));
    MUST(FIND(cuCtxSetCurrent, 4000)(context));
    if (!dlopen(std::getenv("PUMPGRAPH_CONSTRUCTED"), RTLD_NOW))
      std::printf("%s\n", dlerror());
  });
  while (!constructs)
    std::this_thread::yield();
  for (int i = 0; i < count; ++i)
    loop.round(0.5F);
  hasRounds = true;
  other.join();
  loop.print();
}

/// Adds to memory, of whose block it gets another part.
CUgraph graphThatAdds(Loop &loop, CUdeviceptr to) {
  CUgraph graph = nullptr;
  MUST(FIND(cuStreamBeginCapture, 10010)(loop.stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
  loop.call(kernel("addBeside"), to, 0, 1.0F);
  MUST(FIND(cuStreamEndCapture, 10000)(loop.stream(), &graph));
  return graph;
}

CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec exec = nullptr;
  MUST(FIND(cuGraphInstantiateWithFlags, 11040)(&exec, graph, 0));
  MUST(FIND(cuGraphDestroy, 10000)(graph));
  return exec;
}

/// A graph of the program's own is launched in each round: it adds to the loop's memory, or to memory of its own. From
/// some round on there is another one, at whose launch the first is gone.
void graphs(int count) {
  Loop loop(4 * mebibyte);
  constexpr std::size_t bytes = 2 * mebibyte;
  CUdeviceptr own = 0;
  MUST(memAlloc(&own, bytes));
  loop.set(own, static_cast<int>(bytes / sizeof(float)), 0.0F);
  CUgraphExec exec = instantiate(graphThatAdds(loop, own));
  for (int i = 0; i < count; ++i) {
    if (i == count / 2) {
      MUST(FIND(cuGraphExecDestroy, 10000)(exec));
      exec = instantiate(graphThatAdds(loop, loop.sum()));
    }
    loop.round(0.5F, [&] { MUST(FIND(cuGraphLaunch, 10000)(exec, loop.stream())); });
  }
  loop.print();
  float value = 0;
  MUST(FIND(cuMemcpyDtoH, 3020)(&value, own, sizeof value));
  std::printf("%g\n", value);
}

/// The program changes a child of a graph that adds to the loop's memory. The child works in other memory.
void childGraph(int count, bool isChanged) {
  constexpr std::size_t bytes = 2 * mebibyte;
  Loop loop(4 * mebibyte);
  CUdeviceptr own = 0;
  MUST(memAlloc(&own, bytes));
  loop.set(own, static_cast<int>(bytes / sizeof(float)), 0.0F);
  const CUgraphExec exec = instantiate(graphThatAdds(loop, loop.sum()));
  const CUgraph child = graphThatAdds(loop, own);
  if (isChanged)
    MUST(FIND(cuGraphExecChildGraphNodeSetParams, 11010)(exec, nullptr, child));
  for (int i = 0; i < count; ++i)
    loop.round(0.5F, [&] { MUST(FIND(cuGraphLaunch, 10000)(exec, loop.stream())); });
  loop.print();
}

/// The loop's address is in memory that was mapped ahead of all else.
void earlyTable(int count, CUmemLocationType place, CUdeviceptr table) {
  Loop loop(4 * mebibyte);
  if (place == CU_MEM_LOCATION_TYPE_HOST)
    *reinterpret_cast<CUdeviceptr *>(table) = loop.sum();
  else
    storeWord(loop, table, loop.sum());
  const CUfunction add = kernel("addThroughTable");
  for (int i = 0; i < count; ++i)
    loop.roundThrough(add, table);
  loop.print();
}

CUdeviceptr mapped(CUmemLocationType place) {
  constexpr std::size_t bytes = 2 * mebibyte;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = place;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr memory = 0;
  CUmemGenericAllocationHandle handle = 0;
  MUST(FIND(cuMemAddressReserve, 10020)(&memory, bytes, 0, 0, 0));
  MUST(FIND(cuMemCreate, 10020)(&handle, bytes, &properties, 0));
  MUST(FIND(cuMemMap, 10020)(memory, bytes, 0, handle, 0));
  MUST(FIND(cuMemSetAccess, 10020)(memory, bytes, &access, 1));
  return memory;
}

CUdeviceptr mappedWithoutContext = 0;

/// Pinned memory comes and goes in each round.
void pinning(int count) {
  Loop loop(4 * mebibyte);
  for (int i = 0; i < count; ++i)
    loop.round(0.5F, [&] {
      void *pinned = nullptr;
      MUST(FIND(cuMemHostAlloc, 2020)(&pinned, 4096, 0));
      MUST(FIND(cuMemFreeHost, 2000)(pinned));
    });
  loop.print();
}

const Scenarios scenarios{
    {"tails", tails},
    {"early-host-table",
     [](int rounds) { earlyTable(rounds, CU_MEM_LOCATION_TYPE_HOST, mapped(CU_MEM_LOCATION_TYPE_HOST)); }},
    {"early-device-table", [](int rounds) { earlyTable(rounds, CU_MEM_LOCATION_TYPE_DEVICE, mappedWithoutContext); }},
    {"pinning", pinning},
    {"table", [](int rounds) { table(rounds, 0, false); }},
    {"late-table", [](int rounds) { table(rounds, rounds / 2, false); }},
    {"pinned-table", [](int rounds) { table(rounds, rounds / 2, true); }},
    {"reload", reload},
    {"host-table", hostTable},
    {"beside", beside},
    {"packed", packed},
    {"aside", aside},
    {"host-function", hostFunction},
    {"late-kernel", [](int rounds) { lateAddress(rounds, store); }},
    {"late-graph", [](int rounds) { lateAddress(rounds, storeByGraph); }},
    {"late-rows", [](int rounds) { lateAddress(rounds, copyRow); }},
    {"late-value", [](int rounds) { lateAddress(rounds, writeValue); }},
    {"late-host-table", lateHostTable},
    {"host-table-behind", [](int rounds) { hostTableBehind(rounds, 0, upload); }},
    {"late-host-table-behind", [](int rounds) { hostTableBehind(rounds, rounds / 2, upload); }},
    {"stored-host-table-behind", [](int rounds) { hostTableBehind(rounds, rounds / 2, storeWord); }},
    {"host-table-pinned-later", hostTablePinnedLater},
    {"packed-table", [](int rounds) { packedTable(rounds, 0, storeWord); }},
    {"uploaded-packed-table", [](int rounds) { packedTable(rounds, rounds / 2, upload); }},
    {"registered-over-older", registeredOverOlder},
    {"graphs", graphs},
    {"child-graph", [](int rounds) { childGraph(rounds, true); }},
    {"child-graph-as-it-was", [](int rounds) { childGraph(rounds, false); }},
    {"pageable-table", pageableTable},
    {"mapped-table", [](int rounds) { mappedTable(rounds, false); }},
    {"mapped-table-of-one", [](int rounds) { mappedTable(rounds, true); }},
    {"waits", waits},
    {"beside-small", besideSmall},
    {"destroyed-events", destroyedEvents},
    {"release", release},
    {"descriptor", descriptor},
    {"video", [](int rounds) { library(rounds, [] { dlopen("libnvcuvid.so.1", RTLD_NOW); }); }},
    {"player", [](int rounds) { library(rounds, [] { dlopen(std::getenv("PUMPGRAPH_PLAYER"), RTLD_NOW); }); }},
    {"file", [](int rounds) { library(rounds, [] { static_cast<void>(dlsym(RTLD_DEFAULT, "cuFileRead")); }); }},
    {"constructor", constructor},
};

} // namespace

int main(int count, char **arguments) {
  if (count == 3 && arguments[1] == std::string_view("early-device-table")) {
    void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    getProcAddress = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
    mappedWithoutContext = mapped(CU_MEM_LOCATION_TYPE_DEVICE);
  }
  return runScenario(scenarios, count, arguments);
}
