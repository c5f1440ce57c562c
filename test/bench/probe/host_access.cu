// SPDX-License-Identifier: Apache-2.0
/// \file
/// Copies and fills of addresses that lead to host memory, all of them or the first half: who carries them out, and
/// whether they are right, where the processor may reach these addresses as well and where the device alone may. Each
/// in a process of its own, for some end it. nvcc -O2 -std=c++20 -arch=sm_90 host_access.cu -lcuda
#include "check.h"
#include "check_driver.h"
#include "timing.h"

#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t mebi = std::size_t{1} << 20, pageBytes = 2 * mebi, wholeBytes = 64 * mebi;
constexpr std::size_t count = wholeBytes / sizeof(std::uint32_t);

bool hostToo; // whether the processor may reach host memory at the device's addresses
CUcontext context;
CUstream stream;
std::uint32_t *mismatches;

__global__ void write(std::uint32_t *values, std::uint32_t first) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x)
    values[i] = first + static_cast<std::uint32_t>(i);
}
__global__ void compare(const std::uint32_t *values, std::uint32_t first, std::uint32_t step, std::uint32_t *found) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x)
    if (values[i] != first + step * static_cast<std::uint32_t>(i))
      atomicAdd(found, 1);
}

/// Memory of one kind behind some of an address range.
struct Part {
  bool isOnHost;
  std::size_t bytes;
};
const std::vector<Part> host{{true, wholeBytes}}, device{{false, wholeBytes}},
    hostFirst{{true, wholeBytes / 2}, {false, wholeBytes / 2}},
    deviceFirst{{false, wholeBytes / 2}, {true, wholeBytes / 2}};

struct Memory {
  explicit Memory(const std::vector<Part> &parts) {
    check(cuMemAddressReserve(&address, wholeBytes, pageBytes, 0, 0), "addresses");
    map(parts);
  }
  void map(const std::vector<Part> &parts) {
    CUdeviceptr at = address;
    for (const Part &part : parts) {
      const std::size_t piece = part.isOnHost ? part.bytes : pageBytes;
      CUmemAllocationProp properties{};
      properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      properties.location = {part.isOnHost ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE, 0};
      CUmemAccessDesc access[2]{};
      access[0].location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
      access[1].location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
      access[0].flags = access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      for (std::size_t done = 0; done < part.bytes; done += piece, at += piece) {
        CUmemGenericAllocationHandle handle;
        check(cuMemCreate(&handle, piece, &properties, 0), "memory");
        check(cuMemMap(at, piece, 0, handle, 0), "map");
        check(cuMemSetAccess(at, piece, access, part.isOnHost && hostToo ? 2 : 1), "access");
        pieces.emplace_back(at, piece);
      }
    }
  }
  /// To other memory, with another value.
  void mapAnew(const std::vector<Part> &parts) {
    for (const auto &[at, bytes] : std::exchange(pieces, {}))
      check(cuMemUnmap(at, bytes), "unmap");
    map(parts);
  }
  void fill(std::uint32_t first) const {
    write<<<264, 512>>>(reinterpret_cast<std::uint32_t *>(address), first);
    check(cudaDeviceSynchronize(), "fill");
  }
  bool holds(std::uint32_t first, std::uint32_t step = 1) const {
    *mismatches = 0;
    compare<<<264, 512>>>(reinterpret_cast<std::uint32_t *>(address), first, step, mismatches);
    check(cudaDeviceSynchronize(), "compare");
    return *mismatches == 0;
  }

  CUdeviceptr address = 0;
  std::vector<std::pair<CUdeviceptr, std::size_t>> pieces;
};

struct Processors {
  explicit Processors(bool isPinned) : bytes(wholeBytes) {
    if (isPinned)
      check(cuMemHostRegister(bytes.data(), wholeBytes, 0), "pin");
  }
  void fill(std::uint32_t first) {
    for (std::size_t i = 0; i < count; ++i)
      reinterpret_cast<std::uint32_t *>(bytes.data())[i] = first + static_cast<std::uint32_t>(i);
  }
  bool holds(std::uint32_t first) const {
    for (std::size_t i = 0; i < count; ++i)
      if (reinterpret_cast<const std::uint32_t *>(bytes.data())[i] != first + static_cast<std::uint32_t>(i))
        return false;
    return true;
  }
  std::vector<char> bytes;
};

/// Says how long the call and all of it took.
void timed(const std::function<CUresult()> &call, const std::function<bool()> &isRight) {
  const double begin = nowMs();
  const CUresult status = call();
  const double called = nowMs() - begin;
  const CUresult done = status == CUDA_SUCCESS ? cuStreamSynchronize(stream) : status;
  const double all = nowMs() - begin;
  if (done != CUDA_SUCCESS)
    std::printf("%s", nameOf(done));
  else
    std::printf("%s, %.1f ms, %.1f in the call", isRight() ? "right" : "WRONG", all, called);
}

void betweenAddresses(const std::vector<Part> &from, const std::vector<Part> &to) {
  const Memory source(from), target(to);
  source.fill(7);
  target.fill(1);
  timed([&] { return cuMemcpyDtoDAsync(target.address, source.address, wholeBytes, stream); },
        [&] { return target.holds(7); });
}
void down(const std::vector<Part> &from, bool isPinned) {
  const Memory source(from);
  Processors target(isPinned);
  source.fill(7);
  timed([&] { return cuMemcpyDtoHAsync(target.bytes.data(), source.address, wholeBytes, stream); },
        [&] { return target.holds(7); });
}
void up(const std::vector<Part> &to, bool isPinned) {
  Processors source(isPinned);
  const Memory target(to);
  source.fill(7);
  timed([&] { return cuMemcpyHtoDAsync(target.address, source.bytes.data(), wholeBytes, stream); },
        [&] { return target.holds(7); });
}
void fill(const std::vector<Part> &where) {
  const Memory target(where);
  timed([&] { return cuMemsetD32Async(target.address, 9, count, stream); }, [&] { return target.holds(9, 0); });
}

/// A graph with a copy from one to the other, captured and instantiated when its memory is in one place, and launched
/// when it is elsewhere. `isInstantiatedLate`: after the move.
void graphCopy(const std::vector<Part> &captured, const std::vector<Part> &launched, bool isInstantiatedLate) {
  Memory source(captured), target(captured);
  CUgraph graph;
  CUgraphExec exec;
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capture");
  const CUresult copied = cuMemcpyDtoDAsync(target.address, source.address, wholeBytes, stream);
  check(cuStreamEndCapture(stream, &graph), "capture");
  check(copied, "captured copy");
  if (!isInstantiatedLate)
    check(cuGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
  source.mapAnew(launched);
  target.mapAnew(launched);
  source.fill(7);
  target.fill(1);
  if (isInstantiatedLate)
    check(cuGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
  timed([&] { return cuGraphLaunch(exec, stream); }, [&] { return target.holds(7); });
}
void graphFill(const std::vector<Part> &captured, const std::vector<Part> &launched) {
  Memory target(captured);
  CUgraph graph;
  CUgraphExec exec;
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capture");
  const CUresult filled = cuMemsetD32Async(target.address, 9, count, stream);
  check(cuStreamEndCapture(stream, &graph), "capture");
  check(filled, "captured fill");
  check(cuGraphInstantiateWithFlags(&exec, graph, 0), "instantiate");
  target.mapAnew(launched);
  timed([&] { return cuGraphLaunch(exec, stream); }, [&] { return target.holds(9, 0); });
}

void begin() {
  check(cudaSetDevice(0), "device");
  check(cudaMallocManaged(&mismatches, sizeof(*mismatches)), "a word of unified memory");
  check(cuCtxGetCurrent(&context), "context");
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
}

void row(const char *name, const std::function<void()> &run) {
  std::printf("| %s ", name);
  for (const bool both : {true, false}) {
    std::printf("| ");
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      hostToo = both;
      dup2(STDOUT_FILENO, STDERR_FILENO);
      begin();
      run();
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::printf("%s ", WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "");
  }
  std::printf("|\n");
}

} // namespace

int main() {
  std::printf("| 64 MiB | the processor too | the device alone |\n| --- | --- | --- |\n");
  row("host to host", [] { betweenAddresses(host, host); });
  row("host to device", [] { betweenAddresses(host, device); });
  row("host, then device, to host", [] { betweenAddresses(hostFirst, host); });
  row("host, then device, to device", [] { betweenAddresses(hostFirst, device); });
  row("device, then host, to host", [] { betweenAddresses(deviceFirst, host); });
  row("host to host, then device", [] { betweenAddresses(host, hostFirst); });
  row("mixed to mixed the other way round", [] { betweenAddresses(hostFirst, deviceFirst); });
  for (const bool isPinned : {false, true}) {
    const char *kind = isPinned ? "pinned" : "pageable";
    char name[80];
    const std::pair<const char *, const std::vector<Part> *> places[] = {
        {"host", &host}, {"host, then device,", &hostFirst}, {"device, then host,", &deviceFirst}};
    for (const auto &[place, parts] : places) {
      std::snprintf(name, sizeof name, "%s to %s memory", place, kind);
      row(name, [&, parts = parts] { down(*parts, isPinned); });
      std::snprintf(name, sizeof name, "%s memory to %s", kind, place);
      row(name, [&, parts = parts] { up(*parts, isPinned); });
    }
  }
  row("fill of host", [] { fill(host); });
  row("fill of host, then device", [] { fill(hostFirst); });
  row("graph: copy on the host, launched there", [] { graphCopy(host, host, false); });
  row("graph: copy on the host, launched on the device", [] { graphCopy(host, device, false); });
  row("graph: the same, instantiated in between", [] { graphCopy(host, device, true); });
  row("graph: copy on the device, launched on the host", [] { graphCopy(device, host, false); });
  row("graph: the same, instantiated in between", [] { graphCopy(device, host, true); });
  row("graph: copy of host, then device", [] { graphCopy(hostFirst, hostFirst, false); });
  row("graph: fill on the host, launched on the device", [] { graphFill(host, device); });
  row("graph: fill on the device, launched on the host", [] { graphFill(device, host); });
  row("graph: fill of host, then device", [] { graphFill(hostFirst, hostFirst); });
  return 0;
}
