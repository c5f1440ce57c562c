// SPDX-License-Identifier: Apache-2.0
// Which memory the heap's blocks get: when they are allocated, when it is short, and when it becomes another kind.
#include "runtime/memory/Heap.h"

#include <algorithm>
#include <utility>

namespace pumpgraph::runtime {

Status Heap::renew(Block &block) {
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting before freed memory is exchanged");
  PUMPGRAPH_TRY(unback(block));
  return back(block);
}

Status Heap::back(Block &block, bool mayWait) {
  if (mayWait && pool_.available() < block.pages)
    PUMPGRAPH_TRY(narrowStandIns());
  if (mayWait && pool_.available() < block.pages)
    PUMPGRAPH_TRY(flushCache(makeRoom_ ? block.pages : UINT64_MAX));
  if (mayWait && makeRoom_ && pool_.available() < block.pages)
    PUMPGRAPH_TRY((*makeRoom_)(block.pages));
  if (pool_.available() >= block.pages) {
    const Status onDevice = memory_.put(makeRoom_ && block.pages > 1 ? Backing::Piece : Backing::Device, block);
    if (onDevice || onDevice.error().status != PUMPGRAPH_OUT_OF_DEVICE_MEMORY)
      return onDevice;
  }
  return backOnHost(block);
}

Status Heap::flushCache(std::uint64_t wanted) {
  std::vector<BlockId> idle;
  const auto isNoGraphs = [](const auto &entry) { return std::get<GraphNumber>(entry.first) == 0; };
  const auto hasOwnMemory = [](const Block &block) { return block.hasMemory() && block.backing != Backing::Planned; };
  for (const auto &entry : cachedBlocks_)
    if (isNoGraphs(entry))
      std::copy_if(entry.second.begin(), entry.second.end(), std::back_inserter(idle),
                   [&](BlockId id) { return hasOwnMemory(*blocks_[id]); });
  // What a capture freed is not idle while the capture waits to be adopted: its graph uses it.
  for (const std::unique_ptr<Block> &block : blocks_)
    if (block && block->shared && block->retainers == 0 && hasOwnMemory(*block) && !isInUse(*block))
      idle.push_back(block->id);
  if (idle.empty())
    return {};
  // On managed memory that happens during captures, when nothing can be waited for; adoption waits before the graph
  // runs.
  if (!capturing_)
    PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting before cached memory is given up");
  // What takes the fewest calls of the driver first.
  Status done;
  for (auto id = idle.rbegin(); id != idle.rend() && done && pool_.available() < wanted; ++id) {
    Block &block = *blocks_[*id];
    done = unback(block);
    if (done && !keepsAddresses_)
      destroyBlock(block);
  }
  for (auto &[place, cached] : cachedBlocks_)
    std::erase_if(cached, [&](BlockId id) {
      const bool keepsAddress = blocks_[id] && blocks_[id]->backing == Backing::None;
      if (keepsAddress)
        keptAddresses_[blocks_[id]->pages].push_back(id);
      return !blocks_[id] || keepsAddress;
    });
  forgetDestroyed();
  return done;
}

void Heap::dropKeptAddresses() {
  for (const auto &[pages, kept] : std::exchange(keptAddresses_, {}))
    for (const BlockId id : kept)
      if (!blocks_[id]->hasMemory())
        destroyBlock(*blocks_[id]);
      else // of a plan in force
        keptAddresses_[pages].push_back(id);
  forgetDestroyed();
}

Status Heap::takeStandInsAway(std::vector<BlockId> &taken) {
  for (const std::unique_ptr<Block> &block : blocks_)
    if (block && block->backing == Backing::StandIn) {
      PUMPGRAPH_TRY(unback(*block));
      taken.push_back(block->id);
    }
  return {};
}

Status Heap::narrowStandIns() {
  if (capturing_ || !pool_.hasWideStandIns())
    return {};
  std::vector<BlockId> taken;
  const Status done = takeStandInsAway(taken);
  giveStandInsBack(taken);
  return done;
}

void Heap::giveStandInsBack(const std::vector<BlockId> &blocks) {
  for (const BlockId id : blocks)
    if (blocks_[id] && blocks_[id]->backing == Backing::None)
      (void)memory_.standIn(*blocks_[id], 1);
}

bool Heap::hasFramesFor(std::uint64_t pagesBeside) const {
  for (const std::unique_ptr<Block> &block : blocks_)
    pagesBeside += block && block->backing == Backing::Host ? block->pages : 0;
  return pagesBeside <= pool_.available();
}

Status Heap::takeMemory(Block &block, bool hasValue, CUstream stream, std::vector<Contents> &taken) {
  Contents contents{.block = block.id, .backing = block.backing, .bytes = {}};
  if (hasValue && block.hasMemory()) {
    contents.bytes.resize(block.bytes());
    PUMPGRAPH_TRY(driver_.memcpyDtoHAsync(contents.bytes.data(), block.address, block.bytes(), stream));
    PUMPGRAPH_TRY(driver_.streamSynchronize(stream));
  }
  PUMPGRAPH_TRY(unback(block));
  taken.push_back(std::move(contents));
  return {};
}

Expected<std::vector<Heap::Contents>> Heap::takeMemoryAway(const std::function<bool(const Block &)> &hasValue,
                                                           CUstream stream) {
  std::vector<Contents> taken;
  for (const std::unique_ptr<Block> &block : blocks_) {
    if (!block || block->backing == Backing::None)
      continue;
    if (const Status done = takeMemory(*block, hasValue(*block), stream, taken); !done) {
      const Status back = giveMemoryBack(taken, stream);
      return back ? tl::unexpected<Error>(done.error()) : inContext(done.error(), back.error().message);
    }
  }
  return taken;
}

Status Heap::write(const Contents &contents, CUstream stream) {
  if (contents.bytes.empty())
    return {};
  PUMPGRAPH_TRY(
      driver_.memcpyHtoDAsync(block(contents.block).address, contents.bytes.data(), contents.bytes.size(), stream));
  return driver_.streamSynchronize(stream);
}

Status Heap::giveMemoryBack(const std::vector<Contents> &taken, CUstream stream) {
  Status done;
  for (const Contents &contents : taken) {
    Block &owner = block(contents.block);
    if (managed_) { // where memory and contents have been all the time
      owner.backing = contents.backing;
      continue;
    }
    Status given = contents.backing == Backing::StandIn ? memory_.standIn(owner, 1)
                   : contents.backing == Backing::Host  ? backOnHost(owner)
                                                        : back(owner);
    if (given)
      given = write(contents, stream);
    if (!given && done)
      done = given;
  }
  return done;
}

Status Heap::becomeManaged(const std::vector<Contents> &taken, CUstream stream) {
  managed_ = true;
  for (const std::unique_ptr<Block> &block : blocks_)
    if (block && !block->members.empty())
      block->backing = Backing::Managed;
  for (const Contents &contents : taken)
    PUMPGRAPH_TRY(write(contents, stream));
  return {};
}

Status Heap::becomeVirtual(const std::vector<Contents> &taken, CUstream stream) {
  managed_ = false;
  for (const Contents &contents : taken) {
    Block &owner = block(contents.block);
    if (isOfCapture(owner))
      PUMPGRAPH_TRY(memory_.standIn(owner, 1));
    else if (!contents.bytes.empty())
      PUMPGRAPH_TRY(back(owner));
    PUMPGRAPH_TRY(write(contents, stream));
  }
  return {};
}

} // namespace pumpgraph::runtime
