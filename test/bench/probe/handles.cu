// SPDX-License-Identifier: Apache-2.0
/// \file
/// What mapping one handle of device memory again and again costs: 4 GiB of addresses, for handles of 2 to 64 MiB;
/// whether a part of a handle can be mapped; whether memory can be unmapped while a stream is captured. Prints one line
/// per size. nvcc -O2 -std=c++20 -arch=sm_90 handles.cu -lcuda
#include "check.h"
#include "check_driver.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr std::size_t mebi = std::size_t{1} << 20, total = 4096 * mebi;

class Watch {
public:
  double ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

CUmemAllocationProp onDevice() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return properties;
}

CUmemGenericAllocationHandle create(std::size_t bytes) {
  const CUmemAllocationProp properties = onDevice();
  CUmemGenericAllocationHandle handle = 0;
  check(cuMemCreate(&handle, bytes, &properties, 0), "create");
  return handle;
}

void allow(CUdeviceptr address, std::size_t bytes) {
  CUmemAccessDesc access{};
  access.location = onDevice().location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(cuMemSetAccess(address, bytes, &access, 1), "access");
}

void measure(CUdeviceptr address, std::size_t bytes) {
  const CUmemGenericAllocationHandle handle = create(bytes);
  const Watch map;
  for (std::size_t offset = 0; offset < total; offset += bytes)
    check(cuMemMap(address + offset, bytes, 0, handle, 0), "map");
  const double mapMs = map.ms();
  const Watch access;
  allow(address, total);
  const double accessMs = access.ms();
  const Watch unmap;
  check(cuMemUnmap(address, total), "unmap");
  std::printf("%2zu MiB, %4zu times: map %5.1f ms, access %5.1f ms, unmap %5.1f ms\n", bytes / mebi, total / bytes,
              mapMs, accessMs, unmap.ms());
  check(cuMemRelease(handle), "release");
}

void mapAPart(CUdeviceptr address) {
  const CUmemGenericAllocationHandle handle = create(8 * mebi);
  std::printf("the first 4 MiB of a handle of 8: CUDA error %d\n",
              static_cast<int>(cuMemMap(address, 4 * mebi, 0, handle, 0)));
  check(cuMemRelease(handle), "release");
}

void unmapInACapture(CUdeviceptr address) {
  const CUmemGenericAllocationHandle handle = create(2 * mebi);
  check(cuMemMap(address, 2 * mebi, 0, handle, 0), "map");
  allow(address, 2 * mebi);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  const CUresult unmapped = cuMemUnmap(address, 2 * mebi);
  std::printf("unmapping while a stream is captured: CUDA error %d, the capture's end %d\n", static_cast<int>(unmapped),
              static_cast<int>(cudaStreamEndCapture(stream, &graph)));
  check(cuMemRelease(handle), "release");
}

} // namespace

int main() {
  check(cudaFree(nullptr), "context");
  CUdeviceptr address = 0;
  check(cuMemAddressReserve(&address, total, 0, 0, 0), "reserve");
  for (std::size_t bytes = 2 * mebi; bytes <= 64 * mebi; bytes *= 2)
    measure(address, bytes);
  mapAPart(address);
  unmapInACapture(address);
}
