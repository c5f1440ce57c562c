// SPDX-License-Identifier: Apache-2.0
/// \file
/// Allocations, frees, and the driver's answers about memory.
#include "runtime/preload/Hooks.h"

namespace pumpgraph::preload {
namespace {

/// As the driver rounds rows.
constexpr std::size_t pitchBytes = 512;

/// From the heap; nothing where the driver is to answer.
std::optional<CUresult> allocate(CUdeviceptr *address, std::size_t bytes, CUstream stream) {
  if (!address || bytes == 0 || !shim().follows() || shim().mutex().isMine())
    return std::nullopt;
  const std::lock_guard lock(shim().mutex());
  Memory *const memory = shim().memory();
  if (!memory)
    return std::nullopt;
  shim().nextEvent();
  if (!shim().isActive())
    return std::nullopt;
  StreamRun *const streams = shim().streams();
  if (streams)
    if (const runtime::Status ready = streams->beforeAllocation(bytes, stream); !ready)
      return shim().refuse(ready.error());
  const runtime::Expected<CUdeviceptr> allocated =
      memory->allocate(bytes, stream, streams ? streams->expectedAddress() : 0);
  if (streams)
    if (const runtime::Status done = streams->afterAllocation(allocated ? std::optional(*allocated) : std::nullopt);
        !done)
      shim().say(Level::Error, done.error().message);
  if (allocated) {
    *address = *allocated;
    shim().log().allocated(*address, bytes, stream);
    return CUDA_SUCCESS;
  }
  shim().say(Level::Debug, allocated.error().message);
  return memory->loss() != CUDA_SUCCESS ? memory->loss() : CUDA_ERROR_OUT_OF_MEMORY;
}

/// From the driver, counted against the budget: where the heap cannot be asked.
template <typename Allocate>
CUresult allocateGiven(const EntryPoint &entry, CUdeviceptr *address, std::size_t bytes, Allocate allocate) {
  const Outside outside(entry);
  if (outside.refusal() != CUDA_SUCCESS)
    return outside.refusal();
  const bool counts = shim().isActive() && bytes != 0 && !shim().mutex().isMine();
  if (counts) {
    const std::lock_guard lock(shim().mutex());
    if (shim().memory() && !shim().memory()->countGiven(bytes, !shim().isCapturing()))
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = allocate();
  if (!counts)
    return result;
  const std::lock_guard lock(shim().mutex());
  if (Memory *const memory = shim().memoryIfOpen()) {
    if (result == CUDA_SUCCESS)
      memory->noteGiven(*address, bytes);
    else
      memory->uncountGiven(bytes);
  }
  return result;
}

/// The heap's key of a stream: the legacy default stream has two names.
CUstream keyOf(CUstream stream) {
  return stream == CU_STREAM_LEGACY ? nullptr : stream;
}

enum class Owner : std::uint8_t { Driver, Heap };

/// Who has the memory at an address; memory that the driver gave no longer counts.
Owner ownerOf(CUdeviceptr address) {
  if (shim().isLeftAlone())
    return Owner::Driver;
  const std::lock_guard lock(shim().mutex());
  Memory *const memory = shim().memoryIfOpen();
  if (!memory)
    return Owner::Driver;
  if (memory->owns(address))
    return Owner::Heap;
  memory->forgetGiven(address);
  return Owner::Driver;
}

/// Ahead of it the memory has to be idle, in the order of `stream` at least, unless a stream is captured.
CUresult freeOwned(CUdeviceptr address, CUstream stream) {
  const std::lock_guard lock(shim().mutex());
  if (shim().streams())
    if (const runtime::Status ready = shim().streams()->beforeFree(address, stream); !ready)
      return shim().refuse(ready.error());
  shim().log().freed(address, stream);
  return shim().memoryIfOpen()->free(address, stream);
}

} // namespace

CUresult Hook<tag::cuMemAlloc>::call(const Real<CUresult (*)(CUdeviceptr *, std::size_t)> &real, CUdeviceptr *address,
                                     std::size_t bytes) {
  if (const std::optional<CUresult> result = allocate(address, bytes, Memory::forAllStreams()))
    return *result;
  return allocateGiven(real.entry(), address, bytes, [&] { return real(address, bytes); });
}

CUresult Hook<tag::cuMemAllocPitch>::call(
    const Real<CUresult (*)(CUdeviceptr *, std::size_t *, std::size_t, std::size_t, unsigned)> &real,
    CUdeviceptr *address, std::size_t *pitch, std::size_t width, std::size_t height, unsigned elementBytes) {
  const std::size_t row = runtime::roundUp(width, pitchBytes);
  const bool isValid = pitch && (elementBytes == 4 || elementBytes == 8 || elementBytes == 16);
  if (isValid)
    if (const std::optional<CUresult> result = allocate(address, row * height, Memory::forAllStreams())) {
      *pitch = row;
      return *result;
    }
  return allocateGiven(real.entry(), address, row * height,
                       [&] { return real(address, pitch, width, height, elementBytes); });
}

CUresult Hook<tag::cuMemAllocAsync>::call(const Real<CUresult (*)(CUdeviceptr *, std::size_t, CUstream)> &real,
                                          CUdeviceptr *address, std::size_t bytes, CUstream stream) {
  const CUstream key = isOfThread(real.entry(), stream) ? Memory::forAllStreams() : keyOf(stream);
  if (const std::optional<CUresult> result = allocate(address, bytes, key))
    return *result;
  return allocateGiven(real.entry(), address, bytes, [&] { return real(address, bytes, stream); });
}

CUresult Hook<tag::cuMemAllocFromPoolAsync>::call(
    const Real<CUresult (*)(CUdeviceptr *, std::size_t, CUmemoryPool, CUstream)> &real, CUdeviceptr *address,
    std::size_t bytes, CUmemoryPool pool, CUstream stream) {
  const CUstream key = isOfThread(real.entry(), stream) ? Memory::forAllStreams() : keyOf(stream);
  if (const std::optional<CUresult> result = allocate(address, bytes, key))
    return *result;
  return allocateGiven(real.entry(), address, bytes, [&] { return real(address, bytes, pool, stream); });
}

CUresult Hook<tag::cuMemFree>::call(const Real<CUresult (*)(CUdeviceptr)> &real, CUdeviceptr address) {
  if (address == 0 || ownerOf(address) == Owner::Driver)
    return real(address);
  // As the driver does: a free waits for the work that may use the memory.
  static const auto synchronize = reinterpret_cast<CUresult (*)()>(driverFunction("cuCtxSynchronize", 2000));
  if (!shim().isCapturing())
    if (const CUresult waited = synchronize(); waited != CUDA_SUCCESS)
      return waited;
  return freeOwned(address, Memory::forAllStreams());
}

CUresult Hook<tag::cuMemFreeAsync>::call(const Real<CUresult (*)(CUdeviceptr, CUstream)> &real, CUdeviceptr address,
                                         CUstream stream) {
  if (address == 0 || ownerOf(address) == Owner::Driver)
    return real(address, stream);
  if (!isOfThread(real.entry(), stream))
    return freeOwned(address, keyOf(stream));
  static const auto synchronize = reinterpret_cast<CUresult (*)(CUstream)>(driverFunction("cuStreamSynchronize", 2000));
  if (!shim().isCapturing())
    if (const CUresult waited = synchronize(CU_STREAM_PER_THREAD); waited != CUDA_SUCCESS)
      return waited;
  return freeOwned(address, Memory::forAllStreams());
}

CUresult Hook<tag::cuMemGetInfo>::call(const Real<CUresult (*)(std::size_t *, std::size_t *)> &real, std::size_t *free,
                                       std::size_t *total) {
  const CUresult result = real(free, total);
  if (result != CUDA_SUCCESS || !free || !total || !shim().follows())
    return result;
  const std::lock_guard lock(shim().mutex());
  if (const Memory *const memory = shim().memory()) {
    *total = memory->budgetBytes();
    *free = memory->freeBytes();
  }
  return result;
}

CUresult
Hook<tag::cuMemGetAddressRange>::call(const Real<CUresult (*)(CUdeviceptr *, std::size_t *, CUdeviceptr)> &real,
                                      CUdeviceptr *base, std::size_t *bytes, CUdeviceptr address) {
  const auto answer = [&]() -> std::optional<Extent> {
    if (shim().isLeftAlone())
      return std::nullopt;
    const std::lock_guard lock(shim().mutex());
    const Memory *const memory = shim().memoryIfOpen();
    return memory && memory->owns(address) ? memory->find(address) : std::nullopt;
  };
  const std::optional<Extent> extent = answer();
  if (!extent || address == extent->address + extent->bytes)
    return real(base, bytes, address);
  if (base)
    *base = extent->address;
  if (bytes)
    *bytes = extent->bytes;
  return CUDA_SUCCESS;
}

} // namespace pumpgraph::preload
