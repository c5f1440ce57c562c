// SPDX-License-Identifier: Apache-2.0
/// \file
/// What the design leans on, measured on one GPU: frames handed over between branches of one graph, copies in both
/// directions beside kernels, what an added edge costs, remapping under an instantiated graph, event nodes as clocks.
/// Prints one line per figure; docs/results/probes.md holds the figures of one machine.
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>

namespace {

constexpr size_t mib = size_t{1} << 20;
constexpr size_t gib = size_t{1} << 30;
constexpr size_t pageBytes = 2 * mib;

void require(CUresult result, const char *what) {
  if (result == CUDA_SUCCESS)
    return;
  const char *name = "?";
  cuGetErrorName(result, &name);
  std::printf("FAILED %s: %s\n", what, name);
  std::exit(1);
}
void require(cudaError_t result, const char *what) {
  if (result == cudaSuccess)
    return;
  std::printf("FAILED %s: %s\n", what, cudaGetErrorName(result));
  std::exit(1);
}
#define REQUIRE(call) require(call, #call)

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Median {
  double median, low, high;
};
Median medianOf(int repeats, const std::function<void()> &body) {
  std::vector<double> times;
  body();
  for (int i = 0; i < repeats; ++i) {
    const double begin = seconds();
    body();
    times.push_back(seconds() - begin);
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

__global__ void fill(unsigned *data, size_t count, unsigned value) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
    data[i] = value + unsigned(i);
}
__global__ void check(const unsigned *data, size_t count, unsigned value, unsigned long long *bad) {
  unsigned long long wrong = 0;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
    wrong += data[i] != value + unsigned(i);
  if (wrong)
    atomicAdd(bad, wrong);
}
__global__ void streamThrough(float4 *data, size_t count) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) {
    float4 v = data[i];
    v.x += 1;
    data[i] = v;
  }
}
__global__ void readThrough(const float4 *data, size_t count, float *out) {
  float sum = 0;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
    sum += data[i].x + data[i].y + data[i].z + data[i].w;
  if (sum == 1.2345f)
    *out = sum;
}
__global__ void tiny(float *data) {
  data[threadIdx.x] += 1;
}

CUmemAccessDesc deviceAccess() {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}
std::vector<CUmemGenericAllocationHandle> makeFrames(size_t count) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  std::vector<CUmemGenericAllocationHandle> frames(count);
  for (auto &frame : frames)
    REQUIRE(cuMemCreate(&frame, pageBytes, &prop, 0));
  return frames;
}
CUdeviceptr reserve(size_t bytes, CUdeviceptr hint = 0) {
  CUdeviceptr address = 0;
  REQUIRE(cuMemAddressReserve(&address, bytes, pageBytes, hint, 0));
  return address;
}
/// Maps a range onto frames in scattered order (stride 977 is coprime to the counts used here).
void mapScattered(CUdeviceptr address, const std::vector<CUmemGenericAllocationHandle> &frames, size_t stride = 977) {
  for (size_t i = 0; i < frames.size(); ++i)
    REQUIRE(cuMemMap(address + i * pageBytes, pageBytes, 0, frames[(i * stride) % frames.size()], 0));
  const CUmemAccessDesc access = deviceAccess();
  REQUIRE(cuMemSetAccess(address, frames.size() * pageBytes, &access, 1));
}
char *pinned(size_t bytes) {
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 16; ++t)
    threads.emplace_back([=] {
      for (size_t o = bytes / 16 * t; o < bytes / 16 * (t + 1); o += 4096)
        static_cast<char *>(memory)[o] = 1;
    });
  for (auto &thread : threads)
    thread.join();
  REQUIRE(cudaHostRegister(memory, bytes, cudaHostRegisterDefault));
  return static_cast<char *>(memory);
}

struct Graph {
  cudaGraph_t graph = nullptr;
  Graph() { REQUIRE(cudaGraphCreate(&graph, 0)); }
  cudaGraphNode_t kernel(void *function, std::vector<void *> arguments, std::vector<cudaGraphNode_t> after,
                         unsigned blocks = 1056, unsigned threads = 512) {
    cudaKernelNodeParams params{};
    params.func = function;
    params.gridDim = dim3(blocks);
    params.blockDim = dim3(threads);
    params.kernelParams = arguments.data();
    cudaGraphNode_t node;
    REQUIRE(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &params));
    return node;
  }
  cudaGraphNode_t copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                       std::vector<cudaGraphNode_t> after) {
    cudaGraphNode_t node;
    REQUIRE(cudaGraphAddMemcpyNode1D(&node, graph, after.data(), after.size(), to, from, bytes, kind));
    return node;
  }
  cudaGraphExec_t instantiate() {
    cudaGraphExec_t exec;
    REQUIRE(cudaGraphInstantiate(&exec, graph, 0));
    return exec;
  }
};

cudaStream_t stream;
void launch(cudaGraphExec_t exec) {
  REQUIRE(cudaGraphLaunch(exec, stream));
  REQUIRE(cudaStreamSynchronize(stream));
}

/// Two buffers alias the same frames. X is written on one branch, spilled, Y is written and checked on another branch,
/// then X is refilled and checked on the first. Without the hand-over edges the same program must go wrong, or the
/// test shows nothing.
void handOverBetweenBranches() {
  const size_t bytes = 64 * mib, count = bytes / 4;
  const auto frames = makeFrames(bytes / pageBytes);
  const CUdeviceptr x = reserve(bytes), y = reserve(bytes);
  mapScattered(x, frames, 5);
  mapScattered(y, frames, 7);
  char *host = pinned(bytes);
  unsigned long long *bad;
  REQUIRE(cudaMalloc(&bad, 16));
  for (const bool ordered : {true, false}) {
    REQUIRE(cudaMemset(bad, 0, 16));
    Graph g;
    unsigned *px = reinterpret_cast<unsigned *>(x), *py = reinterpret_cast<unsigned *>(y);
    size_t n = count;
    unsigned valueX = 17, valueY = 99;
    unsigned long long *badX = bad, *badY = bad + 1;
    auto writeX = g.kernel((void *)fill, {&px, &n, &valueX}, {});
    auto spillX = g.copy(host, px, bytes, cudaMemcpyDeviceToHost, {writeX});
    auto writeY =
        g.kernel((void *)fill, {&py, &n, &valueY}, ordered ? std::vector{spillX} : std::vector<cudaGraphNode_t>{});
    auto checkY = g.kernel((void *)check, {&py, &n, &valueY, &badY}, {writeY});
    auto refillX =
        g.copy(px, host, bytes, cudaMemcpyHostToDevice, ordered ? std::vector{spillX, checkY} : std::vector{spillX});
    g.kernel((void *)check, {&px, &n, &valueX, &badX}, {refillX});
    cudaGraphExec_t exec = g.instantiate();
    for (int i = 0; i < 300; ++i)
      launch(exec);
    unsigned long long result[2];
    REQUIRE(cudaMemcpy(result, bad, 16, cudaMemcpyDeviceToHost));
    std::printf("hand-over between branches, 64 MiB aliased, 300 replays, %s: %llu + %llu wrong words\n",
                ordered ? "ordered by full edges" : "edges left out (control)", result[0], result[1]);
  }
}

struct Work {
  const char *name;
  std::function<cudaGraphNode_t(Graph &, std::vector<cudaGraphNode_t>)> add;
  int count;
};

/// A chain of kernels with, beside it, a chain of copies up, down or both: what each costs the other.
void copiesBesideKernels() {
  const size_t bytes = gib;
  const auto frames = makeFrames(3 * bytes / pageBytes);
  const CUdeviceptr base = reserve(3 * bytes);
  mapScattered(base, frames);
  char *host = pinned(2 * bytes);
  float4 *data = reinterpret_cast<float4 *>(base);
  const size_t count = bytes / sizeof(float4);
  const int n = 8192;
  __nv_bfloat16 *a, *b, *c;
  REQUIRE(cudaMalloc(&a, size_t(n) * n * 2));
  REQUIRE(cudaMalloc(&b, size_t(n) * n * 2));
  REQUIRE(cudaMalloc(&c, size_t(n) * n * 2));
  fill<<<1056, 512>>>(reinterpret_cast<unsigned *>(a), size_t(n) * n / 2, 0x3c003c01u);
  fill<<<1056, 512>>>(reinterpret_cast<unsigned *>(b), size_t(n) * n / 2, 0x3c103c01u);
  cublasHandle_t handle;
  cublasCreate(&handle);
  cublasSetStream(handle, stream);
  void *workspace; // without one of ours cuBLAS captures memory-allocation nodes, and child graphs refuse those
  REQUIRE(cudaMalloc(&workspace, 64 * mib));
  cublasSetWorkspace(handle, workspace, 64 * mib);
  auto gemm = [&] {
    const float one = 1, zero = 0;
    cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_T, n, n, n, &one, a, CUDA_R_16BF, n, b, CUDA_R_16BF, n, &zero, c,
                 CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  };
  gemm();
  REQUIRE(cudaStreamSynchronize(stream));
  cudaGraph_t gemmGraph;
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  gemm();
  REQUIRE(cudaStreamEndCapture(stream, &gemmGraph));
  const Work works[] = {
      {"bandwidth-bound kernel",
       [&](Graph &g, std::vector<cudaGraphNode_t> after) {
         float4 *p = data;
         size_t k = count;
         return g.kernel((void *)streamThrough, {&p, &k}, after);
       },
       60},
      {"bf16 matrix product 8192",
       [&](Graph &g, std::vector<cudaGraphNode_t> after) {
         cudaGraphNode_t node;
         REQUIRE(cudaGraphAddChildGraphNode(&node, g.graph, after.data(), after.size(), gemmGraph));
         return node;
       },
       25},
  };
  for (const Work &work : works) {
    double alone = 0;
    for (const char *mode : {"alone", "up", "down", "both"}) {
      const bool up = mode[0] == 'u' || mode[0] == 'b', down = mode[0] == 'd' || mode[0] == 'b';
      Graph g;
      std::vector<cudaGraphNode_t> last;
      for (int i = 0; i < work.count; ++i)
        last = {work.add(g, last)};
      const size_t piece = 32 * mib;
      std::vector<cudaGraphNode_t> lastUp, lastDown;
      size_t moved = 0;
      for (size_t o = 0; o < bytes; o += piece) {
        if (up)
          lastUp = {
              g.copy(reinterpret_cast<void *>(base + bytes + o), host + o, piece, cudaMemcpyHostToDevice, lastUp)};
        if (down)
          lastDown = {g.copy(host + bytes + o, reinterpret_cast<void *>(base + 2 * bytes + o), piece,
                             cudaMemcpyDeviceToHost, lastDown)};
        moved += piece * (up + down);
      }
      cudaGraphExec_t exec = g.instantiate();
      const Median time = medianOf(7, [&] { launch(exec); });
      // The copies alone, for comparison: how long they take with no kernel beside them.
      double copyAlone = 0;
      if (moved) {
        Graph only;
        std::vector<cudaGraphNode_t> u, d;
        for (size_t o = 0; o < bytes; o += piece) {
          if (up)
            u = {only.copy(reinterpret_cast<void *>(base + bytes + o), host + o, piece, cudaMemcpyHostToDevice, u)};
          if (down)
            d = {only.copy(host + bytes + o, reinterpret_cast<void *>(base + 2 * bytes + o), piece,
                           cudaMemcpyDeviceToHost, d)};
        }
        cudaGraphExec_t execOnly = only.instantiate();
        copyAlone = medianOf(5, [&] { launch(execOnly); }).median;
      } else {
        alone = time.median;
      }
      std::printf("%s x%d, copies %s: %.2f ms (%.2f..%.2f), kernels alone %.2f ms, copies alone %.2f ms (%.1f GB/s), "
                  "max of the two %.2f, ratio to it %.3f\n",
                  work.name, work.count, mode, time.median * 1e3, time.low * 1e3, time.high * 1e3, alone * 1e3,
                  copyAlone * 1e3, moved ? moved / copyAlone / 1e9 : 0, std::max(alone, copyAlone) * 1e3,
                  time.median / std::max(alone, copyAlone));
    }
    // Kernels that last about as long as the copies, so that a slowdown of either shows.
  }
  // Copy speed beside kernels that run all the time: the graph ends when the kernels do; events cannot be told apart,
  // so kernels are made to last twice the copies and the copies' end is taken from an event node.
  for (const Work &work : works) {
    for (const char *mode : {"up", "down", "both"}) {
      const bool up = mode[0] != 'd', down = mode[0] != 'u';
      Graph g;
      std::vector<cudaGraphNode_t> last;
      for (int i = 0; i < work.count * 2; ++i)
        last = {work.add(g, last)};
      cudaEvent_t begin, endUp, endDown;
      REQUIRE(cudaEventCreate(&begin));
      REQUIRE(cudaEventCreate(&endUp));
      REQUIRE(cudaEventCreate(&endDown));
      cudaGraphNode_t first, node;
      REQUIRE(cudaGraphAddEventRecordNode(&first, g.graph, nullptr, 0, begin));
      std::vector<cudaGraphNode_t> lastUp{first}, lastDown{first};
      for (size_t o = 0; o < bytes; o += 32 * mib) {
        if (up)
          lastUp = {
              g.copy(reinterpret_cast<void *>(base + bytes + o), host + o, 32 * mib, cudaMemcpyHostToDevice, lastUp)};
        if (down)
          lastDown = {g.copy(host + bytes + o, reinterpret_cast<void *>(base + 2 * bytes + o), 32 * mib,
                             cudaMemcpyDeviceToHost, lastDown)};
      }
      REQUIRE(cudaGraphAddEventRecordNode(&node, g.graph, lastUp.data(), lastUp.size(), endUp));
      REQUIRE(cudaGraphAddEventRecordNode(&node, g.graph, lastDown.data(), lastDown.size(), endDown));
      cudaGraphExec_t exec = g.instantiate();
      std::vector<double> rates;
      for (int i = 0; i < 5; ++i) {
        launch(exec);
        float msUp = 0, msDown = 0;
        REQUIRE(cudaEventElapsedTime(&msUp, begin, endUp));
        REQUIRE(cudaEventElapsedTime(&msDown, begin, endDown));
        rates.push_back(double(bytes) * (up + down) / std::max(msUp, msDown) / 1e6);
      }
      std::sort(rates.begin(), rates.end());
      std::printf("copies %s beside %s running throughout: %.1f GB/s (%.1f..%.1f)\n", mode, work.name, rates[2],
                  rates[0], rates[4]);
    }
  }
}

/// What one more in-edge from a finished copy on another branch costs a chain of small kernels.
void costOfEdges() {
  float *data;
  REQUIRE(cudaMalloc(&data, 4096));
  char *device;
  REQUIRE(cudaMalloc(&device, 64 * mib));
  char *host = pinned(64 * mib);
  const int count = 1000;
  for (const int every : {0, 10, 2, 1}) {
    Graph g;
    std::vector<cudaGraphNode_t> last, lastCopy;
    std::vector<cudaGraphNode_t> copies;
    for (int i = 0; i < count; ++i) {
      std::vector<cudaGraphNode_t> after = last;
      if (every && i % every == 0 && i) {
        lastCopy = {g.copy(device, host, 4096, cudaMemcpyHostToDevice, lastCopy)};
        after.push_back(lastCopy[0]);
      }
      last = {g.kernel((void *)tiny, {&data}, after, 1, 32)};
    }
    cudaGraphExec_t exec = g.instantiate();
    const Median time = medianOf(9, [&] { launch(exec); });
    std::printf("chain of %d small kernels, a copy node joined in every %d: %.1f us (%.1f..%.1f)\n", count, every,
                time.median * 1e6, time.low * 1e6, time.high * 1e6);
  }
}

/// Event-record nodes between kernels: what they add, and whether the times they give add up.
void eventsAsClocks() {
  const auto frames = makeFrames(128);
  const CUdeviceptr base = reserve(128 * pageBytes);
  mapScattered(base, frames, 7);
  const int count = 200;
  float4 *p = reinterpret_cast<float4 *>(base);
  size_t n = 128 * pageBytes / sizeof(float4);
  for (const bool timed : {false, true}) {
    Graph g;
    std::vector<cudaGraphNode_t> last;
    std::vector<cudaEvent_t> events(count + 1);
    for (auto &event : events)
      REQUIRE(cudaEventCreate(&event));
    auto record = [&](int i) {
      cudaGraphNode_t node;
      REQUIRE(cudaGraphAddEventRecordNode(&node, g.graph, last.data(), last.size(), events[i]));
      last = {node};
    };
    if (timed)
      record(0);
    for (int i = 0; i < count; ++i) {
      size_t k = i % 2 ? n : 1024;
      last = {g.kernel((void *)streamThrough, {&p, &k}, last)};
      if (timed)
        record(i + 1);
    }
    cudaGraphExec_t exec = g.instantiate();
    const Median time = medianOf(9, [&] { launch(exec); });
    double sum = 0, small = 0, large = 0;
    if (timed)
      for (int i = 0; i < count; ++i) {
        float ms = 0;
        REQUIRE(cudaEventElapsedTime(&ms, events[i], events[i + 1]));
        sum += ms;
        (i % 2 ? large : small) += ms;
      }
    std::printf("200 kernels %s: replay %.1f us; events sum %.1f us, small kernel %.2f us, large %.2f us each\n",
                timed ? "with an event node after each" : "plain", time.median * 1e6, sum * 1e3, small * 1e3 / 100,
                large * 1e3 / 100);
  }
}

/// Unmap and map again (other device frames, host frames) under an instantiated graph, then launch it.
void remapUnderGraph() {
  const size_t bytes = 64 * mib;
  const auto first = makeFrames(bytes / pageBytes), second = makeFrames(bytes / pageBytes);
  const CUdeviceptr hint = 0x300000000000ull;
  const CUdeviceptr address = reserve(bytes, hint);
  std::printf("address hint 0x%llx: got 0x%llx\n", (unsigned long long)hint, (unsigned long long)address);
  mapScattered(address, first, 5);
  char *host = pinned(bytes);
  unsigned long long *bad;
  REQUIRE(cudaMalloc(&bad, 8));
  REQUIRE(cudaMemset(bad, 0, 8));
  Graph g;
  unsigned *p = reinterpret_cast<unsigned *>(address);
  size_t n = bytes / 4;
  unsigned value = 5;
  auto write = g.kernel((void *)fill, {&p, &n, &value}, {});
  auto down = g.copy(host, p, bytes, cudaMemcpyDeviceToHost, {write});
  auto up = g.copy(p, host, bytes, cudaMemcpyHostToDevice, {down});
  g.kernel((void *)check, {&p, &n, &value, &bad}, {up});
  cudaGraphExec_t exec = g.instantiate();
  auto run = [&](const char *what) {
    const cudaError_t launched = cudaGraphLaunch(exec, stream);
    const cudaError_t synced = cudaStreamSynchronize(stream);
    unsigned long long result = 0;
    REQUIRE(cudaMemcpy(&result, bad, 8, cudaMemcpyDeviceToHost));
    std::printf(
        "remap under an instantiated graph, %s: launch %s, sync %s, wrong words %llu, first word on the host %u\n",
        what, cudaGetErrorName(launched), cudaGetErrorName(synced), result, *reinterpret_cast<unsigned *>(host));
  };
  run("as instantiated");
  REQUIRE(cuMemUnmap(address, bytes));
  mapScattered(address, second, 7);
  run("other device frames");
  REQUIRE(cuMemUnmap(address, bytes));
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  CUmemGenericAllocationHandle hostHandle;
  REQUIRE(cuMemCreate(&hostHandle, bytes, &prop, 0));
  REQUIRE(cuMemMap(address, bytes, 0, hostHandle, 0));
  const CUmemAccessDesc access = deviceAccess();
  REQUIRE(cuMemSetAccess(address, bytes, &access, 1));
  run("host frames");
  REQUIRE(cuMemUnmap(address, bytes));
  mapScattered(address, first, 5);
  run("the first frames again");
}

/// Which operations can be captured on an address range that has no memory yet, or only some.
void captureWithoutMemory() {
  const size_t bytes = 8 * mib;
  const auto frames = makeFrames(1);
  const CUmemAccessDesc access = deviceAccess();
  char *host = pinned(16 * mib);
  struct Case {
    const char *name;
    size_t mapped;
    bool accessible;
  };
  for (const Case &c : {Case{"no page mapped", 0, false},
                        {"first page mapped without access", 1, false},
                        {"first page mapped with access", 1, true},
                        {"all pages mapped to one frame without access", 4, false},
                        {"all pages mapped to one frame with access", 4, true}}) {
    const CUdeviceptr address = reserve(bytes);
    for (size_t page = 0; page < c.mapped; ++page) {
      REQUIRE(cuMemMap(address + page * pageBytes, pageBytes, 0, frames[0], 0));
      if (c.accessible)
        REQUIRE(cuMemSetAccess(address + page * pageBytes, pageBytes, &access, 1));
    }
    void *p = reinterpret_cast<void *>(address);
    auto attempt = [&](const char *what, const std::function<cudaError_t()> &operation) {
      cudaGraph_t graph = nullptr;
      REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      const cudaError_t result = operation();
      const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
      cudaGetLastError();
      std::printf("  %s: %s, capture %s\n", what, cudaGetErrorName(result), cudaGetErrorName(ended));
    };
    std::printf("capture with %s\n", c.name);
    attempt("memset 1D", [&] { return cudaMemsetAsync(p, 0, bytes, stream); });
    attempt("memset 1D from the middle",
            [&] { return cudaMemsetAsync(static_cast<char *>(p) + 5 * mib, 0, mib, stream); });
    attempt("memcpy up", [&] { return cudaMemcpyAsync(p, host, bytes, cudaMemcpyHostToDevice, stream); });
    attempt("memcpy default", [&] { return cudaMemcpyAsync(p, host, bytes, cudaMemcpyDefault, stream); });
    attempt("memcpy inside", [&] {
      return cudaMemcpyAsync(static_cast<char *>(p) + 4 * mib, p, mib, cudaMemcpyDeviceToDevice, stream);
    });
    attempt("kernel", [&] {
      fill<<<1, 32, 0, stream>>>(static_cast<unsigned *>(p), 32, 1);
      return cudaGetLastError();
    });
  }
}

/// Host memory as a buffer's backing: how fast it is had and read.
void hostBacking() {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  for (const int threads : {1, 8}) {
    std::vector<CUmemGenericAllocationHandle> handles(64);
    const double begin = seconds();
    std::vector<std::thread> pool;
    for (int t = 0; t < threads; ++t)
      pool.emplace_back([&, t] {
        cudaSetDevice(0);
        for (size_t i = t; i < handles.size(); i += threads)
          REQUIRE(cuMemCreate(&handles[i], 64 * mib, &prop, 0));
      });
    for (auto &thread : pool)
      thread.join();
    std::printf("host-NUMA handles, 64 x 64 MiB by %d threads: %.2f s\n", threads, seconds() - begin);
    for (auto handle : handles)
      REQUIRE(cuMemRelease(handle));
  }
  const double begin = seconds();
  char *host = pinned(4 * gib);
  std::printf("pinned 4 GiB by mmap, 16 threads, register: %.2f s\n", seconds() - begin);
  float *out;
  REQUIRE(cudaMalloc(&out, 4));
  const Median time = medianOf(3, [&] {
    readThrough<<<1056, 512, 0, stream>>>(reinterpret_cast<float4 *>(host), gib / 16, out);
    REQUIRE(cudaStreamSynchronize(stream));
  });
  std::printf("kernel reading registered host memory directly: %.1f GB/s\n", gib / time.median / 1e9);
}

} // namespace

int main(int argc, char **) {
  REQUIRE(cudaSetDevice(0));
  REQUIRE(cudaFree(nullptr));
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  if (argc > 1) { // anything: only the questions that take no time
    captureWithoutMemory();
    return 0;
  }
  handOverBetweenBranches();
  copiesBesideKernels();
  costOfEdges();
  eventsAsClocks();
  remapUnderGraph();
  captureWithoutMemory();
  hostBacking();
  std::puts("done");
}
