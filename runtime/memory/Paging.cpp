// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/Paging.h"

#include <algorithm>
#include <utility>

namespace pumpgraph::runtime {
namespace {

bool isOnDevice(const Block &block) {
  return block.backing == Backing::Device || block.backing == Backing::Piece;
}

} // namespace

void Paging::begin(CUstream stream, std::set<BlockId> fixed) {
  isOn_ = true;
  stream_ = stream;
  fixed_ = std::move(fixed);
  inUse_.clear();
  movedBytes_ = 0;
  host_.keepReleased(true);
  forgetDestroyed();
}

void Paging::end() {
  isOn_ = false;
  inUse_.clear();
}

void Paging::forgetDestroyed() {
  std::erase_if(known_, [&](const auto &known) { return !heap_.exists(known.first); });
  std::erase_if(byUse_, [&](const auto &use) { return !heap_.exists(use.second); });
}

void Paging::touch(BlockId block, bool isSeen) {
  Use &use = known_[block];
  byUse_.erase(use.last);
  use = {.last = ++uses_, .isSeen = isSeen};
  byUse_.emplace(uses_, block);
}

bool Paging::canMove(const Block &block) const {
  return !block.isOfOtherGraph() && !fixed_.contains(block.id);
}

Status Paging::move(Backing backing, BlockId id) {
  Block &block = heap_.block(id);
  const bool crossesLink = (backing == Backing::Host) != (block.backing == Backing::Host);
  PUMPGRAPH_TRY_WHILE(heap_.moveTo(backing, block), "paging \"{}\"", heap_.nameAt(block.address));
  movedBytes_ += crossesLink ? block.bytes() : 0;
  return {};
}

/// Moves nothing where that would not do.
Status Paging::makeRoom(std::uint64_t pages) {
  std::vector<BlockId> leaving;
  std::uint64_t frames = pool_.available();
  for (const bool isSeen : {true, false})
    for (auto use = byUse_.begin(); use != byUse_.end() && frames < pages; ++use) {
      if (!heap_.exists(use->second) || known_.at(use->second).isSeen != isSeen)
        continue;
      const Block &block = heap_.block(use->second);
      if (!isOnDevice(block) || block.shared || inUse_.contains(block.id) || !canMove(block))
        continue;
      leaving.push_back(block.id);
      frames += block.pages;
    }
  if (frames < pages || leaving.empty())
    return {};
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting before memory moves to the host");
  for (const BlockId id : leaving)
    if (const Status moved = move(Backing::Host, id); !moved)
      return moved.error().status == PUMPGRAPH_OUT_OF_HOST_MEMORY ? Status{} : moved;
  return {};
}

Status Paging::use(std::span<const BlockId> blocks) {
  inUse_ = {blocks.begin(), blocks.end()};
  std::vector<BlockId> away;
  for (const BlockId id : blocks) {
    touch(id, true);
    const Block &block = heap_.block(id);
    if (block.backing == Backing::Host && canMove(block) && std::find(away.begin(), away.end(), id) == away.end())
      away.push_back(id);
  }
  if (away.empty())
    return {};
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting before memory comes from the host");
  for (const BlockId id : away) {
    const std::uint64_t pages = heap_.block(id).pages;
    if (pool_.available() < pages)
      PUMPGRAPH_TRY(heap_.narrowStandIns());
    if (pool_.available() < pages)
      PUMPGRAPH_TRY(heap_.flushCache(pages));
    if (pool_.available() < pages)
      PUMPGRAPH_TRY(makeRoom(pages));
    if (pool_.available() < pages)
      continue;
    if (const Status moved = move(Backing::Piece, id); !moved && moved.error().status != PUMPGRAPH_OUT_OF_DEVICE_MEMORY)
      return moved;
  }
  return {};
}

Status Paging::settle() {
  end();
  if (!byUse_.empty())
    PUMPGRAPH_TRY(moveToFrames());
  pool_.giveBackFreePieces();
  host_.keepReleased(false);
  known_.clear();
  byUse_.clear();
  return {};
}

/// One piece after the other, through room for the largest of them.
Status Paging::moveToFrames() {
  PUMPGRAPH_TRY(heap_.flushCache());
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting before memory is mapped in frames");
  std::vector<BlockId> pieces;
  std::uint64_t largest = 0;
  for (const BlockId id : heap_.blocks())
    if (const Block &block = heap_.block(id); block.backing == Backing::Piece) {
      pieces.push_back(id);
      largest = std::max(largest, block.pages);
    }
  if (pool_.available() < largest)
    PUMPGRAPH_TRY(makeRoom(largest));
  for (const BlockId id : pieces)
    if (const Block &block = heap_.block(id); block.backing == Backing::Piece)
      PUMPGRAPH_TRY(move(pool_.available() < block.pages ? Backing::Host : Backing::Device, id));
  forgetDestroyed();
  for (auto use = byUse_.rbegin(); use != byUse_.rend(); ++use)
    if (const Block &block = heap_.block(use->second);
        block.backing == Backing::Host && canMove(block) && pool_.available() >= block.pages)
      PUMPGRAPH_TRY(move(Backing::Device, block.id));
  return {};
}

} // namespace pumpgraph::runtime
