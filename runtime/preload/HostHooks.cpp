// SPDX-License-Identifier: Apache-2.0
/// \file
/// Host memory that kernels reach by its address.
#include "runtime/preload/Hooks.h"

namespace pumpgraph::preload {
namespace {

std::uint64_t wordOf(const void *address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

/// `address` has a value once `get` has returned.
template <typename Get>
CUresult comes(const EntryPoint &entry, const Get &get, void *const &address, std::size_t bytes) {
  const Outside outside(entry);
  if (outside.refusal() != CUDA_SUCCESS)
    return outside.refusal();
  return notesHostMemory(get(), [&](HostRanges &ranges) {
    ranges.note(wordOf(address), bytes);
    return true;
  });
}

/// Ahead of it nobody counts on the memory any more.
template <typename Free> CUresult givesUp(void *address, const Free &free) {
  if (!shim().plans() || !shim().isActive())
    return free();
  HostRanges &ranges = shim().hostRanges();
  std::unique_lock lock(shim().mutex());
  const HostRanges::Pieces taken = ranges.take(wordOf(address));
  lock.unlock();
  const CUresult result = free();
  lock.lock();
  if (result != CUDA_SUCCESS)
    ranges.putBack(taken);
  return result;
}

} // namespace

CUresult Hook<tag::cuMemHostAlloc>::call(const Real<CUresult (*)(void **, std::size_t, unsigned)> &real, void **address,
                                         std::size_t bytes, unsigned flags) {
  return comes(real.entry(), [&] { return real(address, bytes, flags); }, *address, bytes);
}

CUresult Hook<tag::cuMemAllocHost>::call(const Real<CUresult (*)(void **, std::size_t)> &real, void **address,
                                         std::size_t bytes) {
  return comes(real.entry(), [&] { return real(address, bytes); }, *address, bytes);
}

CUresult Hook<tag::cuMemFreeHost>::call(const Real<CUresult (*)(void *)> &real, void *address) {
  return givesUp(address, [&] { return real(address); });
}

CUresult Hook<tag::cuMemHostRegister>::call(const Real<CUresult (*)(void *, std::size_t, unsigned)> &real,
                                            void *address, std::size_t bytes, unsigned flags) {
  return comes(real.entry(), [&] { return real(address, bytes, flags); }, address, bytes);
}

CUresult Hook<tag::cuMemHostUnregister>::call(const Real<CUresult (*)(void *)> &real, void *address) {
  return givesUp(address, [&] { return real(address); });
}

} // namespace pumpgraph::preload
