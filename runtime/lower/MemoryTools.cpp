// SPDX-License-Identifier: Apache-2.0
#include "runtime/lower/MemoryTools.h"

#include <utility>

namespace pumpgraph::runtime {

Status Window::open(std::vector<FrameId> frames) {
  frames_ = std::move(frames);
  PUMPGRAPH_TRY(carve(frames_.size()));
  const Status mapped = tools_.mapper.mapFrames(address_, frames_);
  open_ = mapped.has_value();
  return mapped;
}

Status Window::open(std::uint64_t pages, CUmemGenericAllocationHandle handle) {
  PUMPGRAPH_TRY(carve(pages));
  const Status mapped = tools_.mapper.mapHandle(address_, pages * pageBytes, handle);
  open_ = mapped.has_value();
  return mapped;
}

Status Window::close() {
  Status unmapped;
  if (open_)
    unmapped = frames_.empty() ? tools_.mapper.unmapHandle(address_, pages_ * pageBytes)
                               : tools_.mapper.unmapFrames(address_, frames_);
  open_ = false;
  if (pages_ != 0)
    tools_.addresses.giveBack(address_, pages_);
  pages_ = 0;
  return unmapped;
}

Status Window::carve(std::uint64_t pages) {
  const Expected<CUdeviceptr> address = tools_.addresses.carveApart(pages);
  if (!address)
    return tl::unexpected<Error>(address.error());
  address_ = *address;
  pages_ = pages;
  return {};
}

} // namespace pumpgraph::runtime
