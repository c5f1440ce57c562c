// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/PageMapper.h"

namespace pumpgraph::runtime {
namespace {

/// Calls `visit(firstPage, pages)` for every longest run of pages that have a frame, until one fails.
template <typename Visit> Status forEachRun(std::span<const FrameId> frames, Visit visit) {
  for (std::size_t begin = 0; begin < frames.size();) {
    if (frames[begin] == noFrame) {
      ++begin;
      continue;
    }
    std::size_t end = begin;
    while (end < frames.size() && frames[end] != noFrame)
      ++end;
    PUMPGRAPH_TRY(visit(begin, end - begin));
    begin = end;
  }
  return {};
}

} // namespace

Status PageMapper::allow(CUdeviceptr address, std::uint64_t bytes) const {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device_;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  PUMPGRAPH_TRY_WHILE(driver_.memSetAccess(address, bytes, &access, 1), "giving device {} access to {} at {:#x}",
                      device_, bytesText(bytes), address);
  return {};
}

Status PageMapper::mapFrames(CUdeviceptr address, std::span<const FrameId> frames) const {
  std::size_t mapped = 0;
  const auto mapAll = [&]() -> Status {
    for (; mapped < frames.size(); ++mapped)
      if (frames[mapped] != noFrame)
        PUMPGRAPH_TRY_WHILE(driver_.memMap(address + mapped * pageBytes, pageBytes, 0, pool_.handle(frames[mapped]), 0),
                            "mapping frame {} at page {} of {:#x}", frames[mapped], mapped, address);
    return forEachRun(frames, [&](std::size_t first, std::size_t pages) {
      return allow(address + first * pageBytes, pages * pageBytes);
    });
  };
  Status done = mapAll();
  if (!done)
    (void)unmapFrames(address, frames.first(mapped)); // the first error is the one to report
  return done;
}

Status PageMapper::unmapFrames(CUdeviceptr address, std::span<const FrameId> frames) const {
  return forEachRun(frames, [&](std::size_t first, std::size_t pages) -> Status {
    PUMPGRAPH_TRY_WHILE(driver_.memUnmap(address + first * pageBytes, pages * pageBytes), "unmapping {} pages at {:#x}",
                        pages, address + first * pageBytes);
    return {};
  });
}

Status PageMapper::mapRepeated(CUdeviceptr address, std::uint64_t pages, std::span<const StandIn> standIns) const {
  std::uint64_t mapped = 0;
  const auto mapAll = [&]() -> Status {
    for (const StandIn &standIn : standIns)
      for (; pages - mapped >= standIn.pages; mapped += standIn.pages)
        PUMPGRAPH_TRY_WHILE(
            driver_.memMap(address + mapped * pageBytes, standIn.pages * pageBytes, 0, standIn.handle, 0),
            "mapping a stand-in of {} pages at page {} of {:#x}", standIn.pages, mapped, address);
    return allow(address, pages * pageBytes);
  };
  Status done = mapAll();
  if (!done && mapped != 0)
    (void)unmapHandle(address, mapped * pageBytes);
  return done;
}

Status PageMapper::mapHandle(CUdeviceptr address, std::uint64_t bytes, CUmemGenericAllocationHandle handle) const {
  PUMPGRAPH_TRY_WHILE(driver_.memMap(address, bytes, 0, handle, 0), "mapping {} of host memory at {:#x}",
                      bytesText(bytes), address);
  const Status allowed = allow(address, bytes);
  if (!allowed)
    (void)unmapHandle(address, bytes);
  return allowed;
}

Status PageMapper::unmapHandle(CUdeviceptr address, std::uint64_t bytes) const {
  PUMPGRAPH_TRY_WHILE(driver_.memUnmap(address, bytes), "unmapping {} at {:#x}", bytesText(bytes), address);
  return {};
}

} // namespace pumpgraph::runtime
