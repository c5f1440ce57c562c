// SPDX-License-Identifier: Apache-2.0
/// \file
/// Whether copies of one size can be the rows of one: 64 pieces of device memory at one distance from each other, to
/// and from host memory without gaps, in one chain of a graph whose nodes copy 1 to 64 of them; microseconds for each
/// piece beside its bytes. Once with something mapped between them, once with nothing. nvcc -O2 -std=c++20 -arch=sm_90
/// rows.cu -lcuda
#include "check.h"
#include "check_driver.h"
#include "device_timing.h"

#include <cuda.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <variant>
#include <vector>

namespace {

constexpr std::size_t pieces = 64, kibi = 1024, pageBytes = 2048 * kibi;

cudaStream_t stream;

/// Frames `distance` apart; one more frame is mapped again and again between them if that `isFilled`.
CUdeviceptr scattered(std::size_t distance, bool isFilled) {
  CUdeviceptr address = 0;
  check(cuMemAddressReserve(&address, pieces * distance, pageBytes, 0, 0), "reserve");
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUmemGenericAllocationHandle filler = 0;
  check(cuMemCreate(&filler, pageBytes, &properties, 0), "create");
  for (std::size_t at = 0; isFilled && at < pieces * distance; at += pageBytes)
    if (at % distance != 0) {
      check(cuMemMap(address + at, pageBytes, 0, filler, 0), "map");
      check(cuMemSetAccess(address + at, pageBytes, &access, 1), "access");
    }
  for (std::size_t i = 0; i < pieces; ++i) {
    CUmemGenericAllocationHandle handle = 0;
    check(cuMemCreate(&handle, pageBytes, &properties, 0), "create");
    check(cuMemMap(address + i * distance, pageBytes, 0, handle, 0), "map");
    check(cuMemSetAccess(address + i * distance, pageBytes, &access, 1), "access");
    check(cuMemRelease(handle), "release");
  }
  return address;
}

CUDA_MEMCPY3D copyOf(CUdeviceptr device, std::size_t distance, char *host, std::size_t width, std::size_t rows,
                     bool down) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = down ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  copy.dstMemoryType = down ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  (down ? copy.srcDevice : copy.dstDevice) = device;
  (down ? copy.srcPitch : copy.dstPitch) = rows > 1 ? distance : width;
  (down ? copy.dstHost : *const_cast<void **>(&copy.srcHost)) = host;
  (down ? copy.dstPitch : copy.srcPitch) = width;
  copy.WidthInBytes = width;
  copy.Height = rows;
  copy.Depth = 1;
  return copy;
}

/// Microseconds; the driver's answer where it refuses such a copy.
std::variant<double, CUresult> chainUs(CUdeviceptr device, std::size_t distance, char *host, std::size_t width,
                                       std::size_t rows, bool down) {
  CUcontext context = nullptr;
  check(cuCtxGetCurrent(&context), "context");
  CUgraph graph = nullptr;
  check(cuGraphCreate(&graph, 0), "graph");
  CUgraphNode last = nullptr;
  for (std::size_t i = 0; i < pieces; i += rows) {
    const CUDA_MEMCPY3D copy = copyOf(device + i * distance, distance, host + i * width, width, rows, down);
    CUgraphNode node = nullptr;
    if (const CUresult status =
            cuGraphAddMemcpyNode(&node, graph, last ? &last : nullptr, last ? 1 : 0, &copy, context);
        status != CUDA_SUCCESS) {
      check(cuGraphDestroy(graph), "destroy");
      return status;
    }
    last = node;
  }
  CUgraphExec exec = nullptr;
  check(cuGraphInstantiate(&exec, graph, 0), "instantiate");
  const double us = timeUs(stream, [&] { check(cuGraphLaunch(exec, stream), "launch"); });
  check(cuGraphExecDestroy(exec), "destroy");
  check(cuGraphDestroy(graph), "destroy");
  return us;
}

/// There and back, four rows a copy.
bool arrives(CUdeviceptr device, std::size_t distance, char *host, std::size_t width) {
  for (std::size_t i = 0; i < pieces * width; ++i)
    host[i] = static_cast<char>(i * 131 + i / width);
  const std::vector<char> expected(host, host + pieces * width);
  chainUs(device, distance, host, width, 4, false);
  std::memset(host, 0, pieces * width);
  chainUs(device, distance, host, width, 4, true);
  return std::memcmp(expected.data(), host, expected.size()) == 0;
}

} // namespace

int main() {
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  char *host = nullptr;
  check(cudaHostAlloc(&host, pieces * pageBytes, 0), "host");
  CUdeviceptr whole = 0;
  check(cuMemAlloc(&whole, pieces * pageBytes), "device");
  std::printf(
      "rows a copy                          1        2        4        8       64 (us a piece beside its bytes)\n");
  for (const bool isFilled : {true, false}) {
    constexpr std::size_t distance = 9 * pageBytes;
    const CUdeviceptr device = scattered(distance, isFilled);
    for (const bool down : {false, true})
      for (const std::size_t width : {256 * kibi, 1024 * kibi}) {
        const double wholeUs = timeUs(stream, [&] {
          check(cudaMemcpyAsync(down ? static_cast<void *>(host) : reinterpret_cast<void *>(whole),
                                down ? reinterpret_cast<void *>(whole) : static_cast<void *>(host), pieces * width,
                                down ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream),
                "copy");
        });
        std::printf("%4zu KiB %s, %s between", width / kibi, down ? "down" : "up  ", isFilled ? "memory " : "nothing");
        for (const std::size_t rows : {1, 2, 4, 8, 64}) {
          const std::variant<double, CUresult> us = chainUs(device, distance, host, width, rows, down);
          if (const CUresult *refused = std::get_if<CUresult>(&us)) {
            std::printf(" %s", nameOf(*refused));
            break;
          }
          std::printf(" %8.2f", (std::get<double>(us) - wholeUs) / pieces);
        }
        std::printf("%s\n", !isFilled || arrives(device, distance, host, width) ? "" : "  WRONG BYTES");
      }
  }
  return 0;
}
