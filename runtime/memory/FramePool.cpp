// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/FramePool.h"

namespace pumpgraph::runtime {

FramePool::~FramePool() {
  for (FrameId frame = 0; frame < static_cast<FrameId>(handles_.size()); ++frame)
    if (ended_.count(frame) == 0)
      driver_.memRelease.raw(handle(frame));
  if (standIn_ != 0)
    driver_.memRelease.raw(standIn_);
}

Expected<CUmemGenericAllocationHandle> FramePool::createHandle() const {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device_;
  CUmemGenericAllocationHandle handle = 0;
  PUMPGRAPH_TRY_WHILE(driver_.memCreate(&handle, pageBytes, &properties, 0), "creating device frame {}", created());
  return handle;
}

Status FramePool::create() {
  if (created() >= budgetFrames_)
    return fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY, "the budget of {} is used up", bytesText(budgetFrames_ * pageBytes));
  const Expected<CUmemGenericAllocationHandle> handle = createHandle();
  if (!handle)
    return tl::unexpected<Error>(handle.error());
  if (ended_.empty()) {
    free_.insert(static_cast<FrameId>(handles_.size()));
    handles_.push_back(*handle);
  } else {
    const FrameId frame = ended_.extract(ended_.begin()).value();
    handles_[static_cast<std::size_t>(frame)] = *handle;
    free_.insert(frame);
  }
  mostCreated_ = std::max(mostCreated_, created());
  return {};
}

void FramePool::end(FrameId frame) {
  driver_.memRelease.raw(handle(frame));
  ended_.insert(frame);
}

void FramePool::give(FrameId frame) {
  if (created() > budgetFrames_)
    end(frame);
  else
    free_.insert(frame);
}

void FramePool::setBudget(std::uint64_t frames) {
  budgetFrames_ = frames;
  while (created() > budgetFrames_ && !free_.empty())
    end(free_.extract(std::prev(free_.end())).value());
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
