// SPDX-License-Identifier: Apache-2.0
/// \file
/// Virtual memory that the program manages itself counts against the budget. It stays where the program puts it.
#include "runtime/preload/Hooks.h"

#include <span>

namespace pumpgraph::preload {
namespace {

/// Whether there is memory to be changed.
template <typename Note> bool note(Note change) {
  if (!shim().isActive())
    return false;
  const std::lock_guard lock(shim().mutex());
  Memory *const memory = shim().memoryIfOpen();
  if (memory)
    change(*memory);
  return memory != nullptr;
}

} // namespace

CUresult Hook<tag::cuMemCreate>::call(const Real<CUresult (*)(CUmemGenericAllocationHandle *, std::size_t,
                                                              const CUmemAllocationProp *, unsigned long long)> &real,
                                      CUmemGenericAllocationHandle *handle, std::size_t bytes,
                                      const CUmemAllocationProp *properties, unsigned long long flags) {
  const Outside outside(real.entry());
  if (outside.refusal() != CUDA_SUCCESS)
    return outside.refusal();
  const bool counts = properties && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && shim().follows();
  if (counts) {
    const std::lock_guard lock(shim().mutex());
    if (shim().memory() && !shim().memory()->countGiven(bytes, !shim().isCapturing()))
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = real(handle, bytes, properties, flags);
  if (counts)
    note([&](Memory &memory) {
      if (result == CUDA_SUCCESS)
        memory.noteHandle(*handle, bytes);
      else
        memory.uncountGiven(bytes);
    });
  return result;
}

CUresult Hook<tag::cuMemRelease>::call(const Real<CUresult (*)(CUmemGenericAllocationHandle)> &real,
                                       CUmemGenericAllocationHandle handle) {
  std::shared_ptr<Memory::Handle> released;
  note([&](Memory &memory) { released = memory.releaseHandle(handle); });
  const CUresult result = real(handle);
  if (result != CUDA_SUCCESS && released)
    note([&](Memory &memory) { memory.putBack(handle, released); });
  return result;
}

CUresult
Hook<tag::cuMemRetainAllocationHandle>::call(const Real<CUresult (*)(CUmemGenericAllocationHandle *, void *)> &real,
                                             CUmemGenericAllocationHandle *handle, void *address) {
  const CUresult result = real(handle, address);
  if (result == CUDA_SUCCESS)
    note([&](Memory &memory) { memory.retainHandle(*handle); });
  return result;
}

CUresult Hook<tag::cuMemMap>::call(const Real<CUresult (*)(CUdeviceptr, std::size_t, std::size_t,
                                                           CUmemGenericAllocationHandle, unsigned long long)> &real,
                                   CUdeviceptr address, std::size_t bytes, std::size_t offset,
                                   CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const CUresult result = real(address, bytes, offset, handle, flags);
  if (result != CUDA_SUCCESS)
    return result;
  const bool isNoted = note([&](Memory &memory) {
    memory.noteMapping(address, bytes, handle);
    if (memory.knows(handle))
      return;
    shim().hostRanges().note(address, bytes); // the host's
    if (shim().streams())
      shim().streams()->noteHostMemory();
  });
  if (!isNoted) // nor counted, nor searched
    static_cast<void>(shim().stopPlanning(real.entry().symbol, "memory is mapped ahead of all allocations"));
  return result;
}

CUresult Hook<tag::cuMemSetAccess>::call(
    const Real<CUresult (*)(CUdeviceptr, std::size_t, const CUmemAccessDesc *, std::size_t)> &real, CUdeviceptr address,
    std::size_t bytes, const CUmemAccessDesc *access, std::size_t count) {
  const Outside outside(real.entry()); // memory is not searched meanwhile
  if (outside.refusal() != CUDA_SUCCESS)
    return outside.refusal();
  const CUresult result = real(address, bytes, access, count);
  if (result != CUDA_SUCCESS)
    return result;
  note([&](Memory &memory) {
    for (const CUmemAccessDesc &one : std::span(access, count))
      if (one.location.type == CU_MEM_LOCATION_TYPE_DEVICE && one.location.id == memory.device())
        for (const CUdeviceptr mapping : memory.noteAccess(address, bytes, one.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE))
          if (shim().streams()) // it may hold addresses
            shim().streams()->noteUnsearched(mapping);
  });
  return result;
}

CUresult Hook<tag::cuMemUnmap>::call(const Real<CUresult (*)(CUdeviceptr, std::size_t)> &real, CUdeviceptr address,
                                     std::size_t bytes) {
  const Outside outside(real.entry()); // memory is not searched meanwhile
  if (outside.refusal() != CUDA_SUCCESS)
    return outside.refusal();
  Memory::Mappings taken;
  HostRanges::Pieces ofHost;
  note([&](Memory &memory) {
    taken = memory.takeMappings(address, bytes);
    ofHost = shim().hostRanges().takeWithin(address, bytes);
  });
  const CUresult result = real(address, bytes);
  note([&](Memory &memory) {
    if (result == CUDA_SUCCESS)
      return memory.haveEnded(taken);
    memory.putBack(taken);
    shim().hostRanges().putBack(ofHost);
  });
  return result;
}

} // namespace pumpgraph::preload
