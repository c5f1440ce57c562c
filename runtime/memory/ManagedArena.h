// SPDX-License-Identifier: Apache-2.0
/// \file
/// A contiguous arena of managed memory, allocated ahead of captures, during which the driver refuses to allocate it.
#pragma once

#include "runtime/memory/AddressSpace.h"

#include <cstdint>
#include <memory>

namespace pumpgraph::runtime {

/// The limit of managed memory. More than the device's free memory makes the driver page on its own, at a fraction of
/// the speed and at the expense of every program on the device.
struct ManagedGuard {
  std::uint64_t limitBytes = std::uint64_t{4} << 30;
  bool allowOversubscription = false; ///< beyond the device's free memory; never beyond the limit
};

/// Whole, aligned pages. An address has memory once it is touched or prefetched. The arena is one allocation to the
/// driver, and many adjacent mappings (*strips*) to the kernel of the operating system, because threads that evict
/// pages of one mapping wait for each other page by page.
class ManagedArena {
public:
  /// PUMPGRAPH_OUT_OF_DEVICE_MEMORY, with both numbers, where the guard says no.
  static Expected<std::unique_ptr<ManagedArena>> reserve(const Driver &driver, std::uint64_t bytes,
                                                         const ManagedGuard &guard);
  /// An arena at the front's addresses, which `addresses` has given up then (docs/decisions/11-managed-backend.md).
  /// Nothing may be mapped there. After an error the front is there as before, but for PUMPGRAPH_INTERNAL: somebody
  /// else has its addresses.
  static Expected<std::unique_ptr<ManagedArena>> reserveInFrontOf(const Driver &driver, AddressSpace &addresses,
                                                                  const ManagedGuard &guard);
  /// The driver's alignment of managed memory, in address and size.
  static constexpr std::uint64_t placeUnit = std::uint64_t{32} << 20;
  ~ManagedArena();
  ManagedArena(const ManagedArena &) = delete;
  ManagedArena &operator=(const ManagedArena &) = delete;

  CUdeviceptr base() const { return base_; }
  std::uint64_t bytes() const { return bytes_; }
  /// Of one mapping; all of the arena where it could not be cut.
  std::uint64_t stripBytes() const { return stripBytes_; }

private:
  ManagedArena(const Driver &driver, CUdeviceptr allocation, std::uint64_t bytes);
  static Status checkGuard(const Driver &driver, std::uint64_t bytes, const ManagedGuard &guard);
  static Expected<std::unique_ptr<ManagedArena>> allocate(const Driver &driver, std::uint64_t bytes);
  void cutIntoStrips();

  const Driver &driver_;
  CUdeviceptr allocation_; ///< as the driver gave it
  CUdeviceptr base_;
  std::uint64_t bytes_;
  std::uint64_t stripBytes_;
};

} // namespace pumpgraph::runtime
