// SPDX-License-Identifier: Apache-2.0
/// \file
/// Whether memory that kernels reach at addresses of their own (a hosted page) can be the end of a copy node as well:
/// host memory of the driver's, mapped twice, and frames of 2 MiB on the device. Prints for each way to name the host
/// side what the driver says, how fast copies of 32 MiB in a chain are in either direction, and whether kernel, copy
/// and processor see each other's bytes; and first the same of pinned memory. nvcc -O2 -std=c++20 -arch=sm_90
/// hosted_copies.cu -lcuda
#include "check.h"
#include "check_driver.h"
#include "timing.h"

#include <cuda.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t mebi = std::size_t{1} << 20, pageBytes = 2 * mebi, wholeBytes = 512 * mebi,
                      pieceBytes = 32 * mebi;

__global__ void add(std::uint32_t *values, std::uint32_t summand, std::size_t count) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x)
    values[i] += summand;
}

void allow(CUdeviceptr address, std::size_t bytes, bool hostToo) {
  CUmemAccessDesc access[2]{};
  access[0].location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access[1].location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  access[0].flags = access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(cuMemSetAccess(address, bytes, access, hostToo ? 2 : 1), "access");
}

CUdeviceptr reserve(std::size_t bytes) {
  CUdeviceptr address = 0;
  check(cuMemAddressReserve(&address, bytes, pageBytes, 0, 0), "addresses");
  return address;
}

CUdeviceptr onDevice() {
  const CUdeviceptr address = reserve(wholeBytes);
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  std::vector<CUmemGenericAllocationHandle> frames(wholeBytes / pageBytes);
  for (auto &frame : frames)
    check(cuMemCreate(&frame, pageBytes, &properties, 0), "frame");
  for (std::size_t i = 0; i < frames.size(); ++i) // not in order
    check(cuMemMap(address + i * pageBytes, pageBytes, 0, frames[(i * 37 + 11) % frames.size()], 0), "map");
  allow(address, wholeBytes, false);
  return address;
}

enum class Name { Host, Device, Unified };

CUDA_MEMCPY3D copyOf(CUdeviceptr device, CUdeviceptr host, std::size_t bytes, bool down, Name name) {
  CUDA_MEMCPY3D copy{};
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  const CUmemorytype type = name == Name::Host     ? CU_MEMORYTYPE_HOST
                            : name == Name::Device ? CU_MEMORYTYPE_DEVICE
                                                   : CU_MEMORYTYPE_UNIFIED;
  copy.srcMemoryType = down ? CU_MEMORYTYPE_DEVICE : type;
  copy.dstMemoryType = down ? type : CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = down ? device : host;
  copy.dstDevice = down ? host : device;
  if (name == Name::Host)
    (down ? copy.dstHost : const_cast<void *&>(copy.srcHost)) = reinterpret_cast<void *>(host);
  return copy;
}

CUcontext context;
CUstream stream;

/// Milliseconds of a launch; below 0 if the driver refuses.
double launch(CUgraph graph) {
  CUgraphExec exec;
  if (const CUresult status = cuGraphInstantiateWithFlags(&exec, graph, 0); status != CUDA_SUCCESS) {
    std::printf("    instantiating: %s\n", nameOf(status));
    return -1;
  }
  std::vector<double> ms;
  for (int i = 0; i < 5; ++i) {
    const double begin = nowMs();
    check(cuGraphLaunch(exec, stream), "launch");
    check(cuStreamSynchronize(stream), "graph");
    ms.push_back(nowMs() - begin);
  }
  cuGraphExecDestroy(exec);
  return median(ms);
}

/// A chain of copies.
double chain(CUdeviceptr device, CUdeviceptr host, bool down, Name name) {
  CUgraph graph;
  check(cuGraphCreate(&graph, 0), "graph");
  CUgraphNode last = nullptr;
  for (std::size_t at = 0; at < wholeBytes; at += pieceBytes) {
    const CUDA_MEMCPY3D copy = copyOf(device + at, host + at, pieceBytes, down, name);
    CUgraphNode node;
    if (const CUresult status =
            cuGraphAddMemcpyNode(&node, graph, last ? &last : nullptr, last ? 1 : 0, &copy, context);
        status != CUDA_SUCCESS) {
      std::printf("    adding a copy: %s\n", nameOf(status));
      return -1;
    }
    last = node;
  }
  const double ms = launch(graph);
  cuGraphDestroy(graph);
  return ms;
}

/// device += 1; down; at the page +10; up; device += 100, all in one graph: what is there after one launch.
bool seesEachOther(CUdeviceptr device, CUdeviceptr host, CUdeviceptr page, std::uint32_t *byProcessor, Name name) {
  const std::size_t count = wholeBytes / sizeof(std::uint32_t);
  check(cuMemsetD32(device, 1000, count), "fill");
  check(cuCtxSynchronize(), "fill");
  CUgraph graph;
  check(cudaGraphCreate(&graph, 0), "graph");
  cudaGraphNode_t last = nullptr;
  const auto kernel = [&](CUdeviceptr at, std::uint32_t summand) {
    std::uint32_t *values = reinterpret_cast<std::uint32_t *>(at);
    std::size_t number = count;
    void *arguments[] = {&values, &summand, &number};
    cudaKernelNodeParams parameters{};
    parameters.func = reinterpret_cast<void *>(add);
    parameters.gridDim = dim3(264);
    parameters.blockDim = dim3(1024);
    parameters.kernelParams = arguments;
    cudaGraphNode_t node;
    check(cudaGraphAddKernelNode(&node, graph, last ? &last : nullptr, last ? 1 : 0, &parameters), "kernel");
    last = node;
  };
  const auto copyAll = [&](bool down) {
    const CUDA_MEMCPY3D copy = copyOf(device, host, wholeBytes, down, name);
    CUgraphNode node;
    check(cuGraphAddMemcpyNode(&node, graph, &last, 1, &copy, context), "copy");
    last = node;
  };
  kernel(device, 1);
  copyAll(true);
  kernel(page, 10);
  copyAll(false);
  kernel(device, 100);
  CUgraphExec exec;
  check(cuGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
  bool right = true;
  for (std::uint32_t round = 1; round <= 3; ++round) {
    check(cuGraphLaunch(exec, stream), "launch");
    check(cuStreamSynchronize(stream), "graph");
    std::vector<std::uint32_t> got(count);
    check(cuMemcpyDtoH(got.data(), device, wholeBytes), "look");
    for (std::size_t i = 0; i < count; ++i)
      right = right && got[i] == 1000 + 111 * round && byProcessor[i] == 1000 + 111 * round - 100;
  }
  cuGraphExecDestroy(exec);
  cuGraphDestroy(graph);
  return right;
}

void report(const char *what, CUdeviceptr device, CUdeviceptr host, CUdeviceptr page, void *byProcessor, Name name) {
  std::printf("%s\n", what);
  const double down = chain(device, host, true, name), up = chain(device, host, false, name);
  if (down < 0 || up < 0)
    return;
  std::printf("    %.1f GB/s down, %.1f up; bytes are %s\n", wholeBytes / down / 1e6, wholeBytes / up / 1e6,
              seesEachOther(device, host, page, static_cast<std::uint32_t *>(byProcessor), name) ? "right" : "WRONG");
}

} // namespace

int main() {
  check(cudaSetDevice(0), "device");
  check(cudaFree(nullptr), "context");
  check(cuCtxGetCurrent(&context), "context");
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
  const CUdeviceptr device = onDevice();

  void *pinned = mmap(nullptr, wholeBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(pinned, wholeBytes, MADV_HUGEPAGE);
  std::memset(pinned, 0, wholeBytes);
  check(cuMemHostRegister(pinned, wholeBytes, CU_MEMHOSTREGISTER_PORTABLE), "pin");
  const auto pinnedAddress = reinterpret_cast<CUdeviceptr>(pinned);
  report("pinned memory, named as the host's", device, pinnedAddress, pinnedAddress, pinned, Name::Host);

  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
  CUmemGenericAllocationHandle handle;
  check(cuMemCreate(&handle, wholeBytes, &properties, 0), "host memory");
  const CUdeviceptr window = reserve(wholeBytes), page = reserve(wholeBytes);
  for (const CUdeviceptr address : {window, page}) {
    check(cuMemMap(address, wholeBytes, 0, handle, 0), "map");
    allow(address, wholeBytes, true);
  }
  const auto byProcessor = reinterpret_cast<void *>(window);
  std::memset(byProcessor, 0, wholeBytes);
  std::printf("the processor reaches memory that is mapped twice\n");
  report("mapped twice, named as the device's", device, window, page, byProcessor, Name::Device);
  report("mapped twice, named as either's", device, window, page, byProcessor, Name::Unified);
  report("mapped twice, named as the host's", device, window, page, byProcessor, Name::Host);
  report("the address at which kernels reach it, named as the device's", device, page, page, byProcessor, Name::Device);
  return 0;
}
