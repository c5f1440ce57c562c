// SPDX-License-Identifier: Apache-2.0
/// \file
/// What copies of one direction cost in a graph, by size and by the number of chains they are spread over: copies are
/// ordered within a chain and independent between chains. Frames of 2 MiB under one address range, registered host
/// memory, as the runtime has them. Build: nvcc -O2 -std=c++17 lanes.cpp -o lanes -lcuda
#include "check_driver.h"

#include <cuda.h>

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

#define CHECK(call) check(call, #call)

constexpr size_t page = size_t{2} << 20;
constexpr size_t poolBytes = size_t{1} << 30;

CUdeviceptr deviceRange() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUdeviceptr range = 0;
  CHECK(cuMemAddressReserve(&range, poolBytes, page, 0, 0));
  // Scattered: neighbouring pages do not have neighbouring frames.
  const size_t pages = poolBytes / page;
  for (size_t i = 0; i < pages; ++i) {
    CUmemGenericAllocationHandle frame;
    CHECK(cuMemCreate(&frame, page, &properties, 0));
    CHECK(cuMemMap(range + (i * 37 % pages) * page, page, 0, frame, 0));
  }
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CHECK(cuMemSetAccess(range, poolBytes, &access, 1));
  return range;
}

CUgraphNode addCopy(CUgraph graph, CUcontext context, bool isUp, CUdeviceptr device, char *host, size_t bytes,
                    const CUgraphNode *after) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = isUp ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  copy.dstMemoryType = isUp ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  copy.srcHost = copy.dstHost = host;
  copy.srcDevice = copy.dstDevice = device;
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  CUgraphNode node;
  CHECK(cuGraphAddMemcpyNode(&node, graph, after, after ? 1 : 0, &copy, context));
  return node;
}

CUgraphNode addFill(CUgraph graph, CUcontext context, CUdeviceptr device, const std::vector<CUgraphNode> &after) {
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = device;
  fill.elementSize = 1;
  fill.width = fill.height = 1;
  CUgraphNode node;
  CHECK(cuGraphAddMemsetNode(&node, graph, after.data(), after.size(), &fill, context));
  return node;
}

/// GB/s of `directions` (1: up, 2: down, 3: both) with copies of `bytes` spread over `chains` chains a direction, while
/// `branches` other branches, which the driver gives streams of their own, wait for the last copy of every chain.
double measure(CUcontext context, CUdeviceptr device, char *host, size_t bytes, int chains, int directions,
               int branches = 0) {
  CUgraph graph;
  CHECK(cuGraphCreate(&graph, 0));
  // Both directions at once use different halves.
  const size_t half = poolBytes / 2, count = half / bytes;
  size_t total = 0;
  std::vector<CUgraphNode> ends;
  for (int direction = 0; direction < 2; ++direction) {
    if (!(directions & (1 << direction)))
      continue;
    std::vector<CUgraphNode> last(chains);
    std::vector<bool> begun(chains);
    for (size_t i = 0; i < count; ++i) {
      const size_t offset = direction * half + i * bytes;
      const size_t chain = i % chains;
      last[chain] = addCopy(graph, context, direction == 0, device + offset, host + offset, bytes,
                            begun[chain] ? &last[chain] : nullptr);
      begun[chain] = true;
      total += bytes;
    }
    ends.insert(ends.end(), last.begin(), last.end());
  }
  for (int branch = 0; branch < branches; ++branch) {
    std::vector<CUgraphNode> before = ends;
    before.push_back(addFill(graph, context, device, {}));
    addFill(graph, context, device, before);
  }
  CUgraphExec exec;
  CHECK(cuGraphInstantiate(&exec, graph, 0));
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::vector<double> seconds;
  for (int i = 0; i < 9; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    CHECK(cuGraphLaunch(exec, stream));
    CHECK(cuStreamSynchronize(stream));
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  CHECK(cuStreamDestroy(stream));
  CHECK(cuGraphExecDestroy(exec));
  CHECK(cuGraphDestroy(graph));
  return static_cast<double>(total) / seconds[seconds.size() / 2] / 1e9;
}

} // namespace

int main() {
  CUdevice gpu;
  CUcontext context;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&gpu, 0));
  CHECK(cuDevicePrimaryCtxRetain(&context, gpu));
  CHECK(cuCtxSetCurrent(context));
  const CUdeviceptr device = deviceRange();
  char *host = static_cast<char *>(
      mmap(nullptr, poolBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
  CHECK(cuMemHostRegister(host, poolBytes, CU_MEMHOSTREGISTER_PORTABLE));
  std::printf("GB/s          ");
  for (const char *direction : {"up", "down", "both"})
    for (int chains : {1, 2, 3, 4})
      std::printf("%5s/%d", direction, chains);
  std::printf("\n");
  for (size_t mib : {2, 4, 8, 16, 32, 64}) {
    std::printf("%3zu MiB a copy", mib);
    for (int directions : {1, 2, 3})
      for (int chains : {1, 2, 3, 4})
        std::printf("%7.1f", measure(context, device, host, mib << 20, chains, directions));
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("\n16 MiB a copy, one chain a direction, with branches that wait; GB/s\nbranches   up  down  both\n");
  for (int branches : {0, 1, 2, 4, 8, 16, 32, 64}) {
    std::printf("%8d", branches);
    for (int directions : {1, 2, 3})
      std::printf("%6.1f", measure(context, device, host, 16 << 20, 1, directions, branches));
    std::printf("\n");
  }
  return 0;
}
