// SPDX-License-Identifier: Apache-2.0
// Captures of the session, and graphs of the program's own: what their allocations keep, and when it is free.
#include "runtime/memory/Heap.h"

#include <algorithm>
#include <set>
#include <utility>

namespace pumpgraph::runtime {

CaptureNumber Heap::beginCapture(std::vector<RehearsedAllocation> rehearsed) {
  dropCapture();
  rehearsed_ = std::move(rehearsed);
  capture_ = ++lastCapture_;
  capturing_ = true;
  lastCapturedSerial_ = UINT64_MAX;
  return capture_;
}

void Heap::endCapture() {
  capturing_ = false;
  rehearsed_.clear();
  vacant_.clear();
  lastCapturedSerial_ = lastSerial_;
}

void Heap::dropCapture() {
  capturing_ = false;
  capture_ = 0;
  openSharedCaptured_.reset();
  rehearsed_.clear();
  vacant_.clear();
  captured_.clear();
  const std::vector<Hit> freed = std::exchange(freedInCapture_, {});
  for (const Hit &hit : freed)
    if (blocks_[hit.block]) // an earlier one of the list may have taken a shared block with it
      recycle(*blocks_[hit.block], hit.member);
}

void Heap::recycleUnused(const std::set<BlockId> &used) {
  const std::vector<Hit> freed = std::exchange(freedInCapture_, {});
  for (const Hit &hit : freed) {
    if (used.contains(hit.block))
      freedInCapture_.push_back(hit);
    else if (blocks_[hit.block])
      recycle(*blocks_[hit.block], hit.member);
  }
  forgetDestroyed();
}

void Heap::forgetDestroyed() {
  std::erase_if(captured_, [&](const Hit &hit) { return !blocks_[hit.block]; });
}

std::uint64_t Heap::capturedPages() const {
  std::set<BlockId> blocks;
  std::uint64_t pages = 0;
  for (const Hit &hit : captured_)
    pages += blocks.insert(hit.block).second ? block(hit.block).pages : 0;
  return pages;
}

bool Heap::isInUse(const Block &block) const {
  return std::any_of(block.members.begin(), block.members.end(),
                     [&](const Allocation &member) { return member.isReachable(capture_); });
}

bool Heap::isOfCapture(const Block &block) const {
  return capture_ != 0 && block.retainers == 0 &&
         std::all_of(block.members.begin(), block.members.end(),
                     [&](const Allocation &member) { return member.bornIn == capture_; });
}

/// The smallest one, unless half of it would be left over; of several the one that was freed last, which is the most
/// likely to be on the device.
std::optional<BlockId> Heap::takeVacant(std::uint64_t size, CUstream stream, const LastNodes &after) {
  const std::size_t position = captured_.size();
  const bool isKept = position < rehearsed_.size() && rehearsed_[position].size == size && rehearsed_[position].isKept;
  if (!usesAddressesAgain() || after.empty() || isKept)
    return std::nullopt;
  std::multimap<std::uint64_t, BlockId> &vacant = vacant_[stream];
  const auto least = vacant.lower_bound(pagesFor(size));
  if (least == vacant.end() || least->first >= 2 * pagesFor(size))
    return std::nullopt;
  const auto last = std::prev(vacant.upper_bound(least->first));
  const BlockId taken = last->second;
  vacant.erase(last);
  std::erase_if(freedInCapture_, [&](const Hit &hit) { return hit.block == taken; });
  return taken;
}

void Heap::graphBegins(GraphNumber graph) {
  graphs_.try_emplace(graph);
  lastGraph_ = std::max(lastGraph_, graph);
}

bool Heap::graphsHaveFrames(std::uint64_t pages) const {
  if (mostGraphFrames_ == UINT64_MAX)
    return true;
  for (const std::unique_ptr<Block> &block : blocks_)
    if (block && block->backing == Backing::Device && block->isOfOtherGraph())
      pages += block->pages;
  return pages <= mostGraphFrames_;
}

bool Heap::keepForGraphs(const Block &owner, std::size_t member) {
  Allocation &allocation = block(owner.id).members[member];
  // Where it is no graph's own, those that were captured since may have found it somewhere.
  const GraphNumber first = allocation.graph != 0 ? allocation.graph : allocation.graphsBefore + 1;
  const GraphNumber last = keepsFreed_ ? lastGraph_ : allocation.graph;
  const auto alive = graphs_.lower_bound(first);
  allocation.kept = alive != graphs_.end() && alive->first <= last;
  if (!allocation.kept)
    return false;
  kept_[{first, last}].insert({owner.id, member});
  if (first == last && allocation.graph != 0)
    offer(owner, member, allocation.graph);
  return true;
}

void Heap::graphsEnded(const std::vector<GraphNumber> &ended) {
  if (ended.empty())
    return;
  for (const GraphNumber graph : ended)
    graphs_.erase(graph);
  const auto isOver = [&](GraphNumber graph) { return !graphs_.contains(graph); };
  const auto isOfEnded = [&](const auto &entry) {
    const GraphNumber graph = std::get<GraphNumber>(entry.first);
    return graph != 0 && isOver(graph);
  };
  std::erase_if(cachedBlocks_, isOfEnded);
  std::erase_if(freeSlots_, isOfEnded);
  for (const std::unique_ptr<Block> &block : blocks_)
    for (std::size_t member = 0; block && member < block->members.size(); ++member)
      if (GraphNumber &graph = block->members[member].graph; graph != 0 && isOver(graph))
        graph = 0;
  for (auto waiting = kept_.begin(); waiting != kept_.end();) {
    const auto alive = graphs_.lower_bound(waiting->first.first);
    if (alive != graphs_.end() && alive->first <= waiting->first.second) {
      ++waiting;
      continue;
    }
    for (const Slot &slot : std::exchange(waiting->second, {})) {
      Block &owner = block(slot.block);
      owner.members[slot.member].kept = false;
      recycle(owner, slot.member);
    }
    waiting = kept_.erase(waiting);
  }
}

} // namespace pumpgraph::runtime
