// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/ManagedArena.h"

#include "runtime/memory/AddressSpace.h"

#include <sys/mman.h>

namespace pumpgraph::runtime {
namespace {

/// A process may have 65,530 mappings in all.
constexpr std::uint64_t mostStrips = 8192;

} // namespace

Expected<std::unique_ptr<ManagedArena>> ManagedArena::reserve(const Driver &driver, std::uint64_t bytes,
                                                              const ManagedGuard &guard) {
  if (bytes < pageBytes)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "a managed arena of {}; at least one page of {} is needed",
                bytesText(bytes), bytesText(pageBytes));
  const std::uint64_t wanted = pagesFor(bytes) * pageBytes;
  if (wanted > guard.limitBytes)
    return fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY, "a managed arena of {} exceeds the limit of {}", bytesText(wanted),
                bytesText(guard.limitBytes));
  std::size_t free = 0, total = 0;
  PUMPGRAPH_TRY_WHILE(driver.memGetInfo(&free, &total), "reserving a managed arena of {}", bytesText(wanted));
  if (wanted > free && !guard.allowOversubscription)
    return fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY,
                "a managed arena of {} exceeds the {} that the device has free: it would be oversubscribed",
                bytesText(wanted), bytesText(free));
  CUdeviceptr allocation = 0;
  PUMPGRAPH_TRY_WHILE(driver.memAllocManaged(&allocation, wanted, CU_MEM_ATTACH_GLOBAL),
                      "reserving a managed arena of {}", bytesText(wanted));
  std::unique_ptr<ManagedArena> arena(new ManagedArena(driver, allocation, wanted));
  arena->cutIntoStrips();
  return arena;
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
