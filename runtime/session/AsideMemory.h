// SPDX-License-Identifier: Apache-2.0
/// \file
/// Where the repetitions of a step have what their originals have aside (pumpgraph::Access).
#pragma once

#include "runtime/memory/Heap.h"

#include <memory>

namespace pumpgraph::runtime {

/// An allocation of the session's own, of whole pages, so that nobody else's lies beside it. It has no value that
/// anybody wants, and all repetitions of a step use it, at the same time too.
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
