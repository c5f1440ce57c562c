// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/FramePool.h"

namespace pumpgraph::runtime {

FramePool::~FramePool() {
  for (const CUmemGenericAllocationHandle handle : handles_)
    driver_.memRelease.raw(handle);
  if (standIn_ != 0)
    driver_.memRelease.raw(standIn_);
}

Expected<CUmemGenericAllocationHandle> FramePool::createHandle() const {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device_;
  CUmemGenericAllocationHandle handle = 0;
  PUMPGRAPH_TRY_WHILE(driver_.memCreate(&handle, pageBytes, &properties, 0), "creating device frame {}",
                      handles_.size());
  return handle;
}

Status FramePool::create() {
  if (handles_.size() == budgetFrames_)
    return fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY, "the budget of {} is used up", bytesText(budgetFrames_ * pageBytes));
  const Expected<CUmemGenericAllocationHandle> handle = createHandle();
  if (!handle)
    return tl::unexpected<Error>(handle.error());
  free_.insert(static_cast<FrameId>(handles_.size()));
  handles_.push_back(*handle);
  return {};
}

Expected<CUmemGenericAllocationHandle> FramePool::standIn() {
  if (standIn_ != 0)
    return standIn_;
  const Expected<CUmemGenericAllocationHandle> handle = createHandle();
  if (handle)
    standIn_ = *handle;
  return handle;
}

Expected<FrameId> FramePool::take() {
  if (free_.empty())
    PUMPGRAPH_TRY(create());
  return free_.extract(free_.begin()).value();
}

Status FramePool::ensureFree(std::uint64_t count) {
  while (free_.size() < count)
    PUMPGRAPH_TRY(create());
  return {};
}

} // namespace pumpgraph::runtime
