// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/ManagedArena.h"

#include "runtime/memory/ClosedGaps.h"

#include <sys/mman.h>

namespace pumpgraph::runtime {
namespace {

/// A process may have 65,530 mappings in all.
constexpr std::uint64_t mostStrips = 8192;

} // namespace

Status ManagedArena::checkGuard(const Driver &driver, std::uint64_t bytes, const ManagedGuard &guard) {
  if (bytes > guard.limitBytes)
    return fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY, "a managed arena of {} exceeds the limit of {}", bytesText(bytes),
                bytesText(guard.limitBytes));
  std::size_t free = 0, total = 0;
  PUMPGRAPH_TRY_WHILE(driver.memGetInfo(&free, &total), "reserving a managed arena of {}", bytesText(bytes));
  if (bytes > free && !guard.allowOversubscription)
    return fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY,
                "a managed arena of {} exceeds the {} that the device has free: it would be oversubscribed",
                bytesText(bytes), bytesText(free));
  return {};
}

Expected<std::unique_ptr<ManagedArena>> ManagedArena::allocate(const Driver &driver, std::uint64_t bytes) {
  CUdeviceptr allocation = 0;
  PUMPGRAPH_TRY_WHILE(driver.memAllocManaged(&allocation, bytes, CU_MEM_ATTACH_GLOBAL),
                      "reserving a managed arena of {}", bytesText(bytes));
  return std::unique_ptr<ManagedArena>(new ManagedArena(driver, allocation, bytes));
}

Expected<std::unique_ptr<ManagedArena>> ManagedArena::reserve(const Driver &driver, std::uint64_t bytes,
                                                              const ManagedGuard &guard) {
  if (bytes < pageBytes)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "a managed arena of {}; at least one page of {} is needed",
                bytesText(bytes), bytesText(pageBytes));
  const std::uint64_t wanted = pagesFor(bytes) * pageBytes;
  PUMPGRAPH_TRY(checkGuard(driver, wanted, guard));
  Expected<std::unique_ptr<ManagedArena>> arena = allocate(driver, wanted);
  if (arena)
    (*arena)->cutIntoStrips();
  return arena;
}

/// The driver is not told where: it takes the highest gap that is wide enough, as the kernel of the operating system
/// finds it. So there is no other above the front's end for a moment, and the one that ends there begins with the
/// front.
Expected<std::unique_ptr<ManagedArena>> ManagedArena::reserveInFrontOf(const Driver &driver, AddressSpace &addresses,
                                                                       const ManagedGuard &guard) {
  const CUdeviceptr wanted = addresses.base();
  const std::uint64_t bytes = addresses.frontBytes();
  PUMPGRAPH_TRY(checkGuard(driver, bytes, guard));
  constexpr int attempts = 3; // another thread's mapping may come in between
  CUdeviceptr got = 0;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const ClosedGaps closed(wanted + bytes, bytes);
    PUMPGRAPH_TRY(addresses.giveUpFront());
    Expected<std::unique_ptr<ManagedArena>> arena = allocate(driver, bytes);
    if (arena && (*arena)->allocation_ == wanted) {
      (*arena)->cutIntoStrips();
      return arena;
    }
    if (!arena) {
      PUMPGRAPH_TRY(addresses.takeFront());
      return arena;
    }
    got = (*arena)->allocation_;
    arena->reset();
    PUMPGRAPH_TRY(addresses.takeFront());
  }
  return fail(PUMPGRAPH_DRIVER_ERROR, "the driver puts managed memory at {:#x}, not at {:#x}", got, wanted);
}

ManagedArena::ManagedArena(const Driver &driver, CUdeviceptr allocation, std::uint64_t bytes)
    : driver_(driver), allocation_(allocation), base_(roundUp(allocation, pageBytes)),
      bytes_(bytes - roundUp(base_ - allocation, pageBytes)), // where the driver did not align it, a page less
      stripBytes_(bytes_) {}

/// Neighbours that the kernel has different advice for are different mappings. This one is about reading files, so that
/// it changes nothing else; the driver's module expects mappings to be split.
void ManagedArena::cutIntoStrips() {
  const std::uint64_t wanted = roundUp((bytes_ + mostStrips - 1) / mostStrips, pageBytes);
  for (std::uint64_t at = 0; at < bytes_; at += 2 * wanted)
    if (madvise(reinterpret_cast<void *>(base_ + at), std::min(wanted, bytes_ - at), MADV_RANDOM) != 0)
      return;
  stripBytes_ = wanted;
}

ManagedArena::~ManagedArena() {
  driver_.memFree.raw(allocation_);
}

} // namespace pumpgraph::runtime
