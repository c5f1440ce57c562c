// SPDX-License-Identifier: Apache-2.0
#include "runtime/agent/LaneContexts.h"

#include <algorithm>

namespace pumpgraph::runtime {

std::unique_ptr<LaneContexts> LaneContexts::create(const Driver &driver, int device, CUcontext program,
                                                   std::uint64_t leastFreeBytes) {
  std::unique_ptr<LaneContexts> contexts(new LaneContexts(driver, program));
  CUdevice handle = 0;
  if (driver.deviceGet.raw(&handle, device) != CUDA_SUCCESS)
    return contexts;
  const std::uint64_t before = contexts->freeBytes();
  CUcontext created = nullptr, popped = nullptr;
  if (driver.ctxCreate.raw(&created, 0, handle) != CUDA_SUCCESS)
    return contexts;
  driver.ctxPopCurrent.raw(&popped); // creating it made it current
  const std::uint64_t after = contexts->freeBytes();
  if (after < leastFreeBytes) {
    driver.ctxDestroy.raw(created);
    return contexts;
  }
  contexts->down_ = created;
  contexts->deviceBytes_ = before - std::min(before, after);
  return contexts;
}

LaneContexts::~LaneContexts() {
  if (areTwo())
    driver_.ctxDestroy.raw(down_);
}

std::uint64_t LaneContexts::freeBytes() const {
  const ContextScope scope(driver_, program_);
  std::size_t free = 0, total = 0;
  return driver_.memGetInfo.raw(&free, &total) == CUDA_SUCCESS ? free : 0;
}

} // namespace pumpgraph::runtime
