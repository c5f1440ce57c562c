// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/FramePool.h"

#include <algorithm>
#include <iterator>

namespace pumpgraph::runtime {

/// Of the widest stand-in. All together are not quite twice as much.
static constexpr std::uint64_t mostStandInPages = 16;

FramePool::~FramePool() {
  for (FrameId frame = 0; frame < static_cast<FrameId>(handles_.size()); ++frame)
    if (!ended_.contains(frame))
      driver_.memRelease.raw(handle(frame));
  for (const StandIn &standIn : standIns_)
    driver_.memRelease.raw(standIn.handle);
  giveBackFreePieces();
}

Expected<CUmemGenericAllocationHandle> FramePool::createHandle(std::uint64_t pages) const {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device_;
  CUmemGenericAllocationHandle handle = 0;
  PUMPGRAPH_TRY_WHILE(driver_.memCreate(&handle, pages * pageBytes, &properties, 0),
                      "creating {} of device memory beside {} frames", bytesText(pages * pageBytes), created());
  return handle;
}

Status FramePool::create() {
  while (created() >= budgetFrames_ && !freePieces_.empty())
    endOneFreePiece();
  if (created() >= budgetFrames_)
    return fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY, "the budget of {} is used up", bytesText(budgetFrames_ * pageBytes));
  const Expected<CUmemGenericAllocationHandle> handle = createHandle(1);
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
  endFree(0);
}

void FramePool::giveBackFreePieces() {
  while (!freePieces_.empty())
    endOneFreePiece();
}

void FramePool::giveBackFree() {
  giveBackFreePieces();
  while (!free_.empty())
    endOneFreeFrame();
}

void FramePool::endFree(std::uint64_t pages) {
  while (created() + pages > budgetFrames_ && !freePieces_.empty())
    endOneFreePiece();
  while (created() + pages > budgetFrames_ && !free_.empty())
    endOneFreeFrame();
}

void FramePool::endOneFreeFrame() {
  end(free_.extract(std::prev(free_.end())).value());
}

void FramePool::endOneFreePiece() {
  const auto piece = freePieces_.begin();
  driver_.memRelease.raw(piece->second);
  freePiecePages_ -= piece->first;
  piecePages_ -= piece->first;
  freePieces_.erase(piece);
}

Expected<CUmemGenericAllocationHandle> FramePool::takePiece(std::uint64_t pages) {
  if (const auto known = freePieces_.find(pages); known != freePieces_.end()) {
    freePiecePages_ -= pages;
    return freePieces_.extract(known).mapped();
  }
  if (available() < pages)
    return fail(PUMPGRAPH_OUT_OF_DEVICE_MEMORY, "{} in one piece are beyond what the budget of {} has left",
                bytesText(pages * pageBytes), bytesText(budgetFrames_ * pageBytes));
  endFree(pages);
  const Expected<CUmemGenericAllocationHandle> piece = createHandle(pages);
  if (piece) {
    piecePages_ += pages;
    mostCreated_ = std::max(mostCreated_, created());
  }
  return piece;
}

void FramePool::givePiece(CUmemGenericAllocationHandle piece, std::uint64_t pages) {
  freePieces_.emplace(pages, piece);
  freePiecePages_ += pages;
  endFree(0);
}

Status FramePool::widenStandIns() {
  const std::uint64_t pages = standIns_.empty() ? 1 : 2 * standIns_.back().pages;
  const Expected<CUmemGenericAllocationHandle> handle = createHandle(pages);
  if (!handle)
    return tl::unexpected<Error>(handle.error());
  widePages_ += standIns_.empty() ? 0 : pages;
  standIns_.push_back({pages, *handle});
  mostCreated_ = std::max(mostCreated_, created());
  return {};
}

Expected<std::vector<StandIn>> FramePool::standIns(std::uint64_t pages) {
  if (standIns_.empty())
    PUMPGRAPH_TRY(widenStandIns());
  for (std::uint64_t wider; (wider = 2 * standIns_.back().pages) <= std::min(pages, mostStandInPages);) {
    if (available() < wider)
      break;
    endFree(wider);
    if (!widenStandIns()) // the driver has no more: narrow ones do
      break;
  }
  std::vector<StandIn> fitting;
  std::copy_if(standIns_.rbegin(), standIns_.rend(), std::back_inserter(fitting),
               [&](const StandIn &standIn) { return standIn.pages <= pages; });
  return fitting;
}

void FramePool::releaseWideStandIns() {
  for (; widePages_ != 0; standIns_.pop_back()) {
    driver_.memRelease.raw(standIns_.back().handle);
    widePages_ -= standIns_.back().pages;
  }
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
