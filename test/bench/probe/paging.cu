// SPDX-License-Identifier: Apache-2.0
/// \file
/// What it takes the driver to move a block between the device and host memory that kernels reach, beside the copy
/// (runtime/memory/Paging.h): for device memory in one piece and in frames of 2 MiB, and for host memory in one piece,
/// milliseconds a GiB to create, map, give access to, unmap and release it, in blocks of several sizes; and of copies
/// between the two. With an argument: of copies within host memory, and whether memory can be mapped
/// in part.
/// nvcc -O2 -std=c++20 -arch=sm_90 paging.cu -lcuda
#include "check_driver.h"
#include "timing.h"

#include <cuda.h>

#include <cstddef>
#include <cstdio>
#include <vector>

namespace {

constexpr std::size_t mebi = std::size_t{1} << 20, pageBytes = 2 * mebi, wholeBytes = 1024 * mebi;

enum class Kind { Frames, Piece, Host };
const char *const names[] = {"device, frames", "device, piece", "host, piece"};

CUmemAllocationProp propertiesOf(Kind kind) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {kind == Kind::Host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}

CUdeviceptr reserve() {
  CUdeviceptr address = 0;
  check(cuMemAddressReserve(&address, wholeBytes, pageBytes, 0, 0), "addresses");
  return address;
}

struct Times {
  double create = 0, map = 0, access = 0, unmap = 0, release = 0;
};

double since(double begin) {
  return nowMs() - begin;
}

/// A GiB in blocks of one size. `hostToo`: the processor reaches it at these addresses as well.
struct Memory {
  Memory(Kind kind, std::size_t blockBytes, bool hostToo) : kind(kind), blockBytes(blockBytes), hostToo(hostToo) {}

  void create() {
    const CUmemAllocationProp properties = propertiesOf(kind);
    const double begin = nowMs();
    for (std::size_t at = 0; at < wholeBytes; at += handleBytes())
      check(cuMemCreate(&handles.emplace_back(), handleBytes(), &properties, 0), "memory");
    times.create = since(begin);
  }
  void map(CUdeviceptr address) {
    double begin = nowMs();
    for (std::size_t i = 0; i < handles.size(); ++i)
      check(cuMemMap(address + i * handleBytes(), handleBytes(), 0, handles[i], 0), "map");
    times.map = since(begin);
    CUmemAccessDesc access[2]{};
    access[0].location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    access[1].location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    access[0].flags = access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    begin = nowMs();
    for (std::size_t at = 0; at < wholeBytes; at += blockBytes)
      check(cuMemSetAccess(address + at, blockBytes, access, hostToo ? 2 : 1), "access");
    times.access = since(begin);
  }
  void unmap(CUdeviceptr address) {
    const double begin = nowMs();
    for (std::size_t i = 0; i < handles.size(); ++i)
      check(cuMemUnmap(address + i * handleBytes(), handleBytes()), "unmap");
    times.unmap = since(begin);
  }
  void release() {
    const double begin = nowMs();
    for (const CUmemGenericAllocationHandle handle : handles)
      check(cuMemRelease(handle), "release");
    times.release = since(begin);
  }
  std::size_t handleBytes() const { return kind == Kind::Frames ? pageBytes : blockBytes; }

  Kind kind;
  std::size_t blockBytes;
  bool hostToo;
  std::vector<CUmemGenericAllocationHandle> handles;
  Times times;
};

void timeMapping(Kind kind, std::size_t blockBytes, bool hostToo) {
  Memory memory(kind, blockBytes, hostToo);
  const CUdeviceptr address = reserve();
  memory.create();
  memory.map(address);
  const Times first = memory.times;
  memory.unmap(address);
  memory.map(address); // as for a handle that is kept
  memory.unmap(address);
  const Times again = memory.times;
  memory.release();
  std::printf("| %s%s | %zu MiB | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n", names[static_cast<int>(kind)],
              hostToo ? ", processor too" : "", blockBytes / mebi, first.create, again.map, first.access, again.access,
              again.unmap, memory.times.release);
  check(cuMemAddressFree(address, wholeBytes), "addresses");
}

void timeCopies(std::size_t blockBytes) {
  Memory device(Kind::Piece, blockBytes, false), host(Kind::Host, blockBytes, true);
  const CUdeviceptr here = reserve(), there = reserve();
  for (auto *memory : {&device, &host}) {
    memory->create();
    memory->map(memory == &device ? here : there);
  }
  for (const bool down : {true, false})
    for (const bool asPointer : {false, true}) {
      std::vector<double> times;
      for (int run = 0; run < 5; ++run) {
        const double begin = nowMs();
        for (std::size_t at = 0; at < wholeBytes; at += blockBytes) {
          void *pointer = reinterpret_cast<void *>(there + at);
          const CUresult status = !asPointer ? cuMemcpyDtoDAsync(down ? there + at : here + at,
                                                                 down ? here + at : there + at, blockBytes, nullptr)
                                  : down     ? cuMemcpyDtoHAsync(pointer, here + at, blockBytes, nullptr)
                                             : cuMemcpyHtoDAsync(here + at, pointer, blockBytes, nullptr);
          check(status, "copy");
          check(cuCtxSynchronize(), "copy");
        }
        times.push_back(since(begin));
      }
      std::printf("| %s, %s | %zu MiB | %.1f |\n", down ? "down" : "up",
                  asPointer ? "a host pointer" : "a device address", blockBytes / mebi, median(times));
    }
  device.unmap(here);
  host.unmap(there);
  device.release();
  host.release();
}

/// Whether a handle may be mapped in part, so that pieces of few sizes serve blocks of many.
void mapInPart(Kind kind) {
  const CUmemAllocationProp properties = propertiesOf(kind);
  CUmemGenericAllocationHandle handle;
  check(cuMemCreate(&handle, 64 * mebi, &properties, 0), "memory");
  const CUdeviceptr address = reserve();
  const CUresult mapped = cuMemMap(address, 48 * mebi, 0, handle, 0);
  std::printf("48 of 64 MiB of %s: %s\n", names[static_cast<int>(kind)], nameOf(mapped));
  check(cuMemRelease(handle), "release");
}

/// Whether the device copies between host memory that only it reaches; else the processor tries, and the process ends.
void copyFromHostToHost(bool hostToo) {
  Memory first(Kind::Host, 16 * mebi, hostToo), second(Kind::Host, 16 * mebi, hostToo);
  const CUdeviceptr from = reserve(), to = reserve();
  for (auto *memory : {&first, &second}) {
    memory->create();
    memory->map(memory == &first ? from : to);
  }
  for (std::size_t at = 0; at < wholeBytes; at += first.blockBytes)
    check(cuMemsetD8(from + at, 0x5a, first.blockBytes), "memset");
  const double begin = nowMs();
  for (std::size_t at = 0; at < wholeBytes; at += first.blockBytes)
    check(cuMemcpyDtoDAsync(to + at, from + at, first.blockBytes, nullptr), "copy");
  const double submitted = since(begin);
  check(cuCtxSynchronize(), "copy");
  std::vector<unsigned char> bytes(mebi);
  check(cuMemcpyDtoH(bytes.data(), to + wholeBytes - mebi, mebi), "read");
  std::printf("host to host%s: %s, %.1f ms, of these %.1f in the call\n", hostToo ? ", processor too" : "",
              bytes.front() == 0x5a && bytes.back() == 0x5a ? "right" : "WRONG", since(begin), submitted);
}

} // namespace

int main(int argc, char **) {
  CUdevice device;
  CUcontext context;
  check(cuInit(0), "driver");
  check(cuDeviceGet(&device, 0), "device");
  check(cuDevicePrimaryCtxRetain(&context, device), "context");
  check(cuCtxSetCurrent(context), "context");
  if (argc > 1) { // host-to-host
    copyFromHostToHost(true);
    copyFromHostToHost(false);
    mapInPart(Kind::Piece);
    mapInPart(Kind::Host);
    return 0;
  }
  std::printf("ms a GiB\n\n| memory | blocks | create | map | access, first | access again | unmap | release |\n"
              "| --- | --- | --- | --- | --- | --- | --- | --- |\n");
  for (const std::size_t blockBytes : {16 * mebi, 64 * mebi, 256 * mebi}) {
    timeMapping(Kind::Frames, blockBytes, false);
    timeMapping(Kind::Piece, blockBytes, false);
    timeMapping(Kind::Host, blockBytes, false);
    timeMapping(Kind::Host, blockBytes, true);
  }
  std::printf("\n| copies | blocks | ms a GiB |\n| --- | --- | --- |\n");
  for (const std::size_t blockBytes : {16 * mebi, 64 * mebi, 256 * mebi})
    timeCopies(blockBytes);
  return 0;
}
