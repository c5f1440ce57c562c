// SPDX-License-Identifier: Apache-2.0
/// \file
/// Addresses for a plan's frames, outside all allocations.
#pragma once

#include "runtime/memory/Heap.h"

#include <memory>
#include <vector>

namespace pumpgraph::runtime {

/// A block of Heap::reserve(). Keep it as long as anything is mapped there.
class ReservedBlock {
public:
  static Expected<std::shared_ptr<const ReservedBlock>> create(Heap &heap, std::uint64_t pages) {
    const Expected<BlockId> id = heap.reserve(pages);
    if (!id)
      return tl::unexpected<Error>(id.error());
    return std::shared_ptr<const ReservedBlock>(new ReservedBlock(heap, *id));
  }
  ~ReservedBlock() { heap_.giveUp(id_); }
  ReservedBlock(const ReservedBlock &) = delete;
  ReservedBlock &operator=(const ReservedBlock &) = delete;

  BlockId id() const { return id_; }
  CUdeviceptr address() const { return heap_.block(id_).address; }
  bool contains(CUdeviceptr address) const { return address - this->address() < heap_.block(id_).bytes(); }

private:
  ReservedBlock(Heap &heap, BlockId id) : heap_(heap), id_(id) {}

  Heap &heap_;
  BlockId id_;
};

using ReservedBlocks = std::vector<std::shared_ptr<const ReservedBlock>>;

} // namespace pumpgraph::runtime
