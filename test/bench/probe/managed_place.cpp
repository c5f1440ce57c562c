// SPDX-License-Identifier: Apache-2.0
/// \file
/// Where the driver puts managed memory: after addresses that were reserved, had a frame mapped, and are free again; as
/// it chooses, and with all gaps above closed. Sizes up to 2 GiB, of which nothing but 64 MiB is ever touched. Says too
/// whether kernels reach memory that the program maps itself, and how far each try is from the place that is wanted.
/// g++ -std=c++20 -I../../.. -I/usr/local/cuda/include managed_place.cpp ../../../runtime/memory/ClosedGaps.cpp -lcuda
#include "check_driver.h"
#include "runtime/memory/ClosedGaps.h"

#include <cuda.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>

namespace {

constexpr std::size_t mebi = std::size_t{1} << 20, pageBytes = 2 * mebi;
constexpr CUdeviceptr wanted = 0x2d35'0000'0000;
constexpr CUmemLocation device{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

/// Reserves the addresses, uses a frame there, and gives all of it back.
void useAndGiveBack(std::size_t bytes) {
  CUdeviceptr address = 0;
  check(cuMemAddressReserve(&address, bytes, pageBytes, wanted, 0), "reserve");
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = device;
  CUmemAccessDesc access{};
  access.location = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUmemGenericAllocationHandle frame = 0;
  check(cuMemCreate(&frame, pageBytes, &properties, 0), "create");
  check(cuMemMap(address, pageBytes, 0, frame, 0), "map");
  check(cuMemSetAccess(address, pageBytes, &access, 1), "access");
  check(cuMemsetD8(address, 7, pageBytes), "fill");
  check(cuCtxSynchronize(), "fill");
  check(cuMemUnmap(address, pageBytes), "unmap");
  check(cuMemRelease(frame), "release");
  check(cuMemAddressFree(address, bytes), "free addresses");
  if (address != wanted)
    std::printf("the hint is not granted: %#llx\n", address);
}

void place(std::size_t bytes, bool closesGaps) {
  useAndGiveBack(bytes);
  const auto start = std::chrono::steady_clock::now();
  auto closed = closesGaps ? std::make_unique<pumpgraph::runtime::ClosedGaps>(wanted + bytes, bytes) : nullptr;
  CUdeviceptr address = 0;
  check(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL), "managed memory");
  closed.reset();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  check(cuMemsetD8(address, 3, 64 * mebi), "fill");
  check(cuCtxSynchronize(), "fill");
  const bool isRight = *reinterpret_cast<unsigned char *>(address + 64 * mebi - 1) == 3;
  const auto distance = static_cast<std::int64_t>(address - wanted) / static_cast<std::int64_t>(mebi);
  std::printf("%5zu MiB, gaps %s: %lld MiB from the place, %s, %.2f ms\n", bytes / mebi, closesGaps ? "closed" : "open",
              static_cast<long long>(distance), isRight ? "usable" : "not usable", took.count());
  check(cuMemFree(address), "free");
}

} // namespace

int main() {
  check(cuInit(0), "init");
  CUcontext context = nullptr;
  check(cuDevicePrimaryCtxRetain(&context, 0), "context");
  check(cuCtxSetCurrent(context), "context");
  int reaches = 0;
  check(cuDeviceGetAttribute(&reaches, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0), "attribute");
  std::printf("kernels %s memory that the program maps itself\n", reaches ? "reach" : "do not reach");
  for (const std::size_t mebis : {64, 512, 514, 1024, 2048})
    for (const bool closesGaps : {false, true})
      place(mebis * mebi, closesGaps);
}
