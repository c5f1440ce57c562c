// SPDX-License-Identifier: Apache-2.0
/// \file
/// The session's tools for moving memory, and windows onto it.
#pragma once

#include "runtime/memory/Heap.h"

namespace pumpgraph::runtime {

/// Tools borrowed from the session.
struct MemoryTools {
  const Driver &driver;
  AddressSpace &addresses;
  FramePool &frames;
  HostMemory &host;
  const PageMapper &mapper;
  Heap &heap;
  CUstream stream;
  /// Counts how often values have left the addresses at which others may have found them.
  std::uint64_t &departures;
};

/// A second mapping of memory, at addresses of its own, through which contents are copied while a block's addresses are
/// between two mappings.
class Window {
public:
  explicit Window(const MemoryTools &tools) : tools_(tools) {}
  ~Window() { (void)close(); } // an error on this path follows one already reported
  Window(const Window &) = delete;
  Window &operator=(const Window &) = delete;

  Status open(std::vector<FrameId> frames);
  Status open(std::uint64_t pages, CUmemGenericAllocationHandle handle);
  Status close();
  CUdeviceptr address() const { return address_; }

private:
  Status carve(std::uint64_t pages);

  MemoryTools tools_;
  CUdeviceptr address_ = 0;
  std::uint64_t pages_ = 0;
  std::vector<FrameId> frames_;
  bool open_ = false;
};

} // namespace pumpgraph::runtime
