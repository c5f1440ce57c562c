// SPDX-License-Identifier: Apache-2.0
#include "runtime/agent/LaneContexts.h"

#include <algorithm>

namespace pumpgraph::runtime {

std::unique_ptr<LaneContexts> LaneContexts::create(const Driver &driver, int device, CUcontext program,
                                                   std::uint64_t leastFreeBytes, std::size_t wanted) {
  std::unique_ptr<LaneContexts> contexts(new LaneContexts(driver, program));
  CUdevice handle = 0;
  if (driver.deviceGet.raw(&handle, device) != CUDA_SUCCESS)
    return contexts;
  while (contexts->ownContexts() < wanted && contexts->add(handle, leastFreeBytes)) {
  }
  return contexts;
}

bool LaneContexts::add(CUdevice device, std::uint64_t leastFreeBytes) {
  const std::uint64_t before = freeBytes();
  CUcontext created = nullptr, popped = nullptr;
  if (driver_.ctxCreate.raw(&created, 0, device) != CUDA_SUCCESS)
    return false;
  // Creating it made it current. No kernel will run in it, and what it has for their stacks is half of its memory.
  driver_.ctxSetLimit.raw(CU_LIMIT_STACK_SIZE, 0);
  driver_.ctxPopCurrent.raw(&popped);
  const std::uint64_t after = freeBytes();
  if (after < leastFreeBytes) {
    driver_.ctxDestroy.raw(created);
    return false;
  }
  own_.push_back(created);
  deviceBytes_ += before - std::min(before, after);
  return true;
}

LaneContexts::~LaneContexts() {
  for (const CUcontext context : own_)
    driver_.ctxDestroy.raw(context);
}

std::uint64_t LaneContexts::freeBytes() const {
  const ContextScope scope(driver_, program_);
  std::size_t free = 0, total = 0;
  return driver_.memGetInfo.raw(&free, &total) == CUDA_SUCCESS ? free : 0;
}

} // namespace pumpgraph::runtime
