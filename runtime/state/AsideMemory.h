// SPDX-License-Identifier: Apache-2.0
/// \file
/// Memory for the aside accesses (pumpgraph::Access) of a step's repetitions.
#pragma once

#include "runtime/memory/Heap.h"

#include <memory>

namespace pumpgraph::runtime {

/// An allocation of the session, of whole pages that hold nothing else. Its contents are never used, and all
/// repetitions of a step share it, concurrently too.
class AsideMemory {
public:
  static Expected<std::shared_ptr<const AsideMemory>> create(Heap &heap, std::uint64_t bytes) {
    const std::uint64_t size = roundUp(bytes, pageBytes);
    const Expected<CUdeviceptr> address = heap.allocate(size, nullptr, "memory of repetitions");
    if (!address)
      return tl::unexpected<Error>(address.error());
    return std::shared_ptr<const AsideMemory>(new AsideMemory(heap, *address, size));
  }
  ~AsideMemory() { static_cast<void>(heap_.free(address_, nullptr)); }
  AsideMemory(const AsideMemory &) = delete;
  AsideMemory &operator=(const AsideMemory &) = delete;

  CUdeviceptr address() const { return address_; }
  bool contains(CUdeviceptr address) const { return address - address_ < size_; }

private:
  AsideMemory(Heap &heap, CUdeviceptr address, std::uint64_t size) : heap_(heap), address_(address), size_(size) {}

  Heap &heap_;
  CUdeviceptr address_;
  std::uint64_t size_;
};

} // namespace pumpgraph::runtime
