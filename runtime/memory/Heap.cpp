// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory/Heap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace pumpgraph::runtime {
namespace {

constexpr std::uint64_t alignment = 512;
/// From this size on an allocation has pages of its own.
constexpr std::uint64_t leastLargeBytes = std::uint64_t{1} << 20;

/// A graph may use it: one of the program's own, or one being captured or waiting to be adopted.
bool isReachable(const Allocation &member, CaptureNumber capture) {
  return member.live || member.kept || (capture != 0 && member.diedIn == capture);
}

std::string allocating(std::uint64_t size, std::string_view name) {
  return fmt::format("allocating {}{}", bytesText(size), name.empty() ? "" : fmt::format(" \"{}\"", name));
}

} // namespace

std::string nameOf(const Allocation &allocation) {
  return allocation.name.empty() ? fmt::format("buffer{}", allocation.serial) : allocation.name;
}

bool Block::hasLiveMember() const {
  return std::any_of(members.begin(), members.end(),
                     [](const Allocation &member) { return member.live || member.kept; });
}

bool Block::isOfOtherGraph() const {
  return std::any_of(members.begin(), members.end(),
                     [](const Allocation &member) { return member.graph != 0 || member.kept; });
}

Heap::~Heap() {
  for (const std::unique_ptr<Block> &block : blocks_)
    if (block && block->backing != Backing::Planned)
      (void)unback(*block); // the session is ending: nobody is left to tell
}

Block &Heap::addBlock(CUdeviceptr address, std::uint64_t pages, bool shared) {
  auto block = std::make_unique<Block>();
  block->id = static_cast<BlockId>(blocks_.size());
  block->address = address;
  block->pages = pages;
  block->shared = shared;
  const std::uint64_t first = addresses_.pageIndex(address) - AddressSpace::guardPages;
  const std::uint64_t end = first + pages + 2 * AddressSpace::guardPages;
  if (blockOfPage_.size() < end)
    blockOfPage_.resize(end, -1);
  std::fill(blockOfPage_.begin() + static_cast<std::ptrdiff_t>(first),
            blockOfPage_.begin() + static_cast<std::ptrdiff_t>(end), static_cast<std::int32_t>(block->id));
  blocks_.push_back(std::move(block));
  return *blocks_.back();
}

Expected<Block *> Heap::createBlock(std::uint64_t pages, bool shared, GraphNumber graph) {
  const bool mayWait = graph == 0; // a wait would end the capture
  Expected<CUdeviceptr> address = addresses_.carve(pages);
  if (!address && managed_ && mayWait) { // there, cached blocks are short of addresses only
    PUMPGRAPH_TRY(flushCache());
    address = addresses_.carve(pages);
  }
  if (!address)
    return tl::unexpected<Error>(address.error());
  Block &created = addBlock(*address, pages, shared);
  if (managed_) {
    created.backing = Backing::Managed;
    return &created;
  }
  const bool onHost = graph != 0 && !graphsHaveFrames(pages);
  if (const Status backed = capturing_ ? standIn(created, pages)
                            : onHost   ? backOnHost(created)
                                       : back(created, mayWait);
      !backed) {
    destroyBlock(created);
    return tl::unexpected<Error>(backed.error());
  }
  return &created;
}

bool Heap::graphsHaveFrames(std::uint64_t pages) const {
  if (mostGraphFrames_ == UINT64_MAX)
    return true;
  for (const std::unique_ptr<Block> &block : blocks_)
    if (block && block->backing == Backing::Device && block->isOfOtherGraph())
      pages += block->pages;
  return pages <= mostGraphFrames_;
}

Status Heap::standIn(Block &block, std::uint64_t widest) {
  const Expected<std::vector<StandIn>> standIns = pool_.standIns(widest);
  if (!standIns)
    return tl::unexpected<Error>(standIns.error());
  if (Status mapped = mapper_.mapRepeated(block.address, block.pages, *standIns); !mapped) {
    if (stoodIn_ == 0)
      pool_.releaseWideStandIns();
    return mapped;
  }
  block.backing = Backing::StandIn;
  ++stoodIn_;
  return {};
}

void Heap::destroyBlock(Block &block) {
  (void)unback(block); // an address range that the driver does not give back is lost, nothing else
  const auto begin = blockOfPage_.begin() +
                     static_cast<std::ptrdiff_t>(addresses_.pageIndex(block.address) - AddressSpace::guardPages);
  std::fill(begin, begin + static_cast<std::ptrdiff_t>(block.pages + 2 * AddressSpace::guardPages), -1);
  addresses_.giveBack(block.address, block.pages);
  if (openShared_ == block.id)
    openShared_.reset();
  if (openSharedCaptured_ == block.id)
    openSharedCaptured_.reset();
  for (auto &[graph, open] : graphs_)
    if (open == block.id)
      open.reset();
  forgetSlots(block.id);
  blocks_[block.id].reset();
}

void Heap::forgetSlots(BlockId block) {
  for (auto &[key, slots] : freeSlots_)
    std::erase_if(slots, [&](const Slot &slot) { return slot.block == block; });
}

Expected<CUdeviceptr> Heap::allocate(std::uint64_t size, CUstream stream, std::string_view name, LastNodes after,
                                     GraphNumber graph) {
  if (size == 0)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "an allocation of 0 bytes");
  if (graph != 0)
    graphBegins(graph);
  return size >= leastLargeBytes ? allocateLarge(size, stream, name, std::move(after), graph)
                                 : allocateSmall(size, stream, name, graph);
}

CUdeviceptr Heap::addressOf(const Slot &slot) const {
  return blocks_[slot.block]->address + blocks_[slot.block]->members[slot.member].offset;
}

template <typename Item> Item Heap::takeReusable(std::vector<Item> &reusable) const {
  const auto isLower = [&](const Item &one, const Item &other) { return addressOf(one) < addressOf(other); };
  const auto place =
      takesLowest_ ? std::min_element(reusable.begin(), reusable.end(), isLower) : std::prev(reusable.end());
  const Item taken = *place;
  reusable.erase(place);
  return taken;
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

Expected<CUdeviceptr> Heap::allocateLarge(std::uint64_t size, CUstream stream, std::string_view name, LastNodes after,
                                          GraphNumber graph) {
  const std::uint64_t pages = pagesFor(size);
  if (const std::optional<BlockId> vacant = takeVacant(size, stream, after)) {
    Block &reused = block(*vacant);
    Allocation &member = reused.members.emplace_back();
    member.room = reused.bytes();
    const CUdeviceptr address = handOut(reused, reused.members.size() - 1, size, stream, name, graph);
    reused.members.back().after = std::move(after);
    return address;
  }
  if (!capturing_) {
    std::vector<BlockId> &cached = cachedBlocks_[{graph, pages, stream}];
    if (!cached.empty()) {
      Block &reused = block(takeReusable(cached));
      if (makeRoom_ && reused.backing == Backing::Host)
        if (const Status renewed = renew(reused); !renewed) {
          destroyBlock(reused);
          return inContext(renewed.error(), allocating(size, name));
        }
      return handOut(reused, 0, size, stream, name, graph);
    }
  }
  const Expected<Block *> created = createBlock(pages, false, graph);
  if (!created)
    return inContext(created.error(), allocating(size, name));
  Block &fresh = **created;
  fresh.members.emplace_back().room = fresh.bytes();
  return handOut(fresh, 0, size, stream, name, graph);
}

void Heap::graphBegins(GraphNumber graph) {
  graphs_.try_emplace(graph);
  lastGraph_ = std::max(lastGraph_, graph);
}

std::optional<BlockId> &Heap::openFor(GraphNumber graph) {
  if (graph != 0)
    return graphs_.at(graph);
  return capturing_ ? openSharedCaptured_ : openShared_;
}

Expected<CUdeviceptr> Heap::allocateSmall(std::uint64_t size, CUstream stream, std::string_view name,
                                          GraphNumber graph) {
  const std::uint64_t room = roundUp(size, alignment);
  if (!capturing_) {
    std::vector<Slot> &slots = freeSlots_[{graph, room, stream}];
    if (!slots.empty()) {
      const Slot slot = takeReusable(slots);
      return handOut(block(slot.block), slot.member, size, stream, name, graph);
    }
  }
  std::optional<BlockId> &open = openFor(graph);
  if (!open || block(*open).usedBytes + room > block(*open).bytes()) {
    const Expected<Block *> created = createBlock(1, true, graph);
    if (!created)
      return inContext(created.error(), allocating(size, name));
    open = (*created)->id;
  }
  Block &shared = block(*open);
  Allocation &member = shared.members.emplace_back();
  member.offset = shared.usedBytes;
  member.room = room;
  shared.usedBytes += room;
  return handOut(shared, shared.members.size() - 1, size, stream, name, graph);
}

CUdeviceptr Heap::handOut(Block &block, std::size_t member, std::uint64_t size, CUstream stream, std::string_view name,
                          GraphNumber graph) {
  Allocation &allocation = block.members[member];
  if (allocation.kept)
    kept_[{graph, graph}].erase({block.id, member});
  allocation = {.offset = allocation.offset,
                .size = size,
                .room = allocation.room,
                .serial = ++lastSerial_,
                .name = std::string(name),
                .stream = stream,
                .bornIn = capturing_ ? capture_ : 0,
                .diedIn = 0,
                .live = true,
                .graph = graph,
                .graphsBefore = lastGraph_,
                .kept = false,
                .after = {},
                .declaredPrivate = false,
                .declaredPresent = false};
  if (capturing_)
    captured_.push_back({block.id, member, 0});
  stats_.liveBytes += size;
  ++stats_.liveAllocations;
  stats_.livePeakBytes = std::max(stats_.livePeakBytes, stats_.liveBytes);
  stats_.livePeakAllocations = std::max(stats_.livePeakAllocations, stats_.liveAllocations);
  stats_.allocatedBytes += size;
  ++stats_.allocations;
  return block.address + allocation.offset;
}

Status Heap::free(CUdeviceptr pointer, CUstream stream) {
  const std::optional<Hit> hit = find(pointer);
  if (!hit || hit->offset != 0 || !blocks_[hit->block]->members[hit->member].live)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "{:#x} is not the start of a live allocation", pointer);
  Block &owner = block(hit->block);
  Allocation &allocation = owner.members[hit->member];
  allocation.live = false;
  allocation.stream = stream;
  stats_.liveBytes -= allocation.size;
  --stats_.liveAllocations;
  if (capture_ != 0 && allocation.serial <= lastCapturedSerial_) {
    allocation.diedIn = capture_;
    allocation.isScratch = freedIsScratch_ && allocation.bornIn == capture_;
    freedInCapture_.push_back(*hit);
    if (usesAddressesAgain() && !owner.shared && allocation.bornIn == capture_)
      vacant_[stream].emplace(owner.pages, owner.id);
    return {};
  }
  recycle(owner, hit->member);
  return {};
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

void Heap::offer(const Block &owner, std::size_t member, GraphNumber graph) {
  const Allocation &allocation = owner.members[member];
  if (owner.shared)
    freeSlots_[{graph, allocation.room, allocation.stream}].push_back({owner.id, member});
  else
    cachedBlocks_[{graph, owner.pages, allocation.stream}].push_back(owner.id);
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

void Heap::recycle(Block &owner, std::size_t member) {
  if (keepForGraphs(owner, member) || owner.retainers != 0)
    return;
  if (!owner.hasMemory()) {
    // Only what was captured and never adopted has no memory; its addresses are not handed out again in pieces.
    if (!owner.hasLiveMember() && openSharedCaptured_ != owner.id)
      destroyBlock(owner);
    return;
  }
  if (!owner.shared) {
    owner.members.erase(owner.members.begin(), owner.members.end() - 1);
    member = 0;
  }
  offer(owner, member, 0);
}

std::optional<Hit> Heap::find(std::uint64_t word) const {
  if (!addresses_.contains(word))
    return std::nullopt;
  const std::uint64_t page = addresses_.pageIndex(word);
  if (page >= blockOfPage_.size() || blockOfPage_[page] < 0)
    return std::nullopt;
  const Block &owner = *blocks_[static_cast<std::size_t>(blockOfPage_[page])];
  if (owner.members.empty())
    return std::nullopt;
  const auto fromStart = static_cast<std::int64_t>(word - owner.address);
  // The last member that does not start after the word; what lies before the first belongs to the first.
  auto after = std::upper_bound(
      owner.members.begin(), owner.members.end(), fromStart,
      [](std::int64_t offset, const Allocation &member) { return offset < static_cast<std::int64_t>(member.offset); });
  const std::size_t member =
      after == owner.members.begin() ? 0 : static_cast<std::size_t>(after - owner.members.begin()) - 1;
  if (!isReachable(owner.members[member], capture_))
    return std::nullopt;
  return Hit{owner.id, member, fromStart - static_cast<std::int64_t>(owner.members[member].offset)};
}

Expected<Hit> Heap::require(const void *pointer) const {
  const std::optional<Hit> hit = find(reinterpret_cast<std::uintptr_t>(pointer));
  if (!hit || hit->offset < 0)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "{} points into no live allocation of this session", fmt::ptr(pointer));
  return *hit;
}

std::string Heap::nameAt(CUdeviceptr address) const {
  const std::optional<Hit> hit = find(address);
  if (!hit)
    return "freed memory";
  return nameOf(blocks_[hit->block]->members[hit->member]);
}

std::vector<BlockId> Heap::blocks() const {
  std::vector<BlockId> ids;
  for (const std::unique_ptr<Block> &block : blocks_)
    if (block)
      ids.push_back(block->id);
  return ids;
}

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

Expected<Heap::Memory> Heap::takeMemory(Backing backing, std::uint64_t pages) {
  Memory memory{.backing = backing, .frames = {}, .handle = 0};
  if (backing == Backing::Device) {
    PUMPGRAPH_TRY(pool_.ensureFree(pages));
    for (std::uint64_t page = 0; page < pages; ++page)
      memory.frames.push_back(*pool_.take());
    return memory;
  }
  const auto handle = backing == Backing::Piece ? pool_.takePiece(pages) : host_.createBacking(pages * pageBytes);
  if (!handle)
    return tl::unexpected<Error>(handle.error());
  memory.handle = *handle;
  return memory;
}

void Heap::giveMemory(const Memory &memory, std::uint64_t pages) {
  for (const FrameId frame : memory.frames)
    pool_.give(frame);
  if (memory.backing == Backing::Piece)
    pool_.givePiece(memory.handle, pages);
  if (memory.backing == Backing::Host)
    host_.releaseBacking(memory.handle, pages * pageBytes);
}

Status Heap::mapMemory(CUdeviceptr address, std::uint64_t pages, const Memory &memory) const {
  if (memory.backing == Backing::Device)
    return mapper_.mapFrames(address, memory.frames);
  if (memory.backing == Backing::Host)
    return mapper_.mapHandle(address, pages * pageBytes, memory.handle);
  const StandIn piece{.pages = pages, .handle = memory.handle};
  return mapper_.mapRepeated(address, pages, {&piece, 1});
}

Status Heap::unmapMemory(CUdeviceptr address, std::uint64_t pages, const Memory &memory) const {
  return memory.backing == Backing::Device ? mapper_.unmapFrames(address, memory.frames)
                                           : mapper_.unmapHandle(address, pages * pageBytes);
}

Heap::Memory Heap::memoryOf(const Block &block) {
  return {.backing = block.backing,
          .frames = block.frames,
          .handle = block.backing == Backing::Piece ? block.pieceHandle : block.hostHandle};
}

void Heap::setMemory(Block &block, Memory memory) {
  block.backing = memory.backing;
  block.frames = std::move(memory.frames);
  block.hostHandle = memory.backing == Backing::Host ? memory.handle : 0;
  block.pieceHandle = memory.backing == Backing::Piece ? memory.handle : 0;
}

Status Heap::backOn(Backing backing, Block &block) {
  assert(!block.hasMemory());
  Expected<Memory> memory = takeMemory(backing, block.pages);
  if (!memory)
    return tl::unexpected<Error>(memory.error());
  Status mapped = unback(block);
  if (mapped)
    mapped = mapMemory(block.address, block.pages, *memory);
  if (!mapped) {
    giveMemory(*memory, block.pages);
    return mapped;
  }
  setMemory(block, std::move(*memory));
  return {};
}

Status Heap::backOnDevice(Block &block) {
  return backOn(Backing::Device, block);
}

Status Heap::backOnHost(Block &block) {
  return backOn(Backing::Host, block);
}

Status Heap::moveTo(Backing backing, Block &block) {
  assert(block.backing == Backing::Device || block.backing == Backing::Piece || block.backing == Backing::Host);
  Expected<Memory> memory = takeMemory(backing, block.pages);
  if (!memory)
    return tl::unexpected<Error>(memory.error());
  const Memory before = memoryOf(block);
  Status moved = copyTo(*memory, block);
  if (moved)
    moved = unmapMemory(block.address, block.pages, before);
  if (moved) {
    moved = mapMemory(block.address, block.pages, *memory);
    if (!moved)
      (void)mapMemory(block.address, block.pages, before); // it still holds the contents
  }
  if (!moved) {
    giveMemory(*memory, block.pages);
    return moved;
  }
  setMemory(block, std::move(*memory));
  giveMemory(before, block.pages);
  return {};
}

/// Through addresses of its own: those of the block are taken.
Status Heap::copyTo(const Memory &memory, const Block &block) {
  const Expected<CUdeviceptr> window = addresses_.carveApart(block.pages);
  if (!window)
    return tl::unexpected<Error>(window.error());
  Status copied = mapMemory(*window, block.pages, memory);
  if (copied) {
    copied = driver_.memcpyDtoDAsync(*window, block.address, block.bytes(), nullptr);
    if (copied)
      copied = driver_.ctxSynchronize();
    const Status unmapped = unmapMemory(*window, block.pages, memory);
    if (copied)
      copied = unmapped;
  }
  addresses_.giveBack(*window, block.pages);
  return copied;
}

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
    const Status onDevice = backOn(makeRoom_ && block.pages > 1 ? Backing::Piece : Backing::Device, block);
    if (onDevice || onDevice.error().status != PUMPGRAPH_OUT_OF_DEVICE_MEMORY)
      return onDevice;
  }
  return backOnHost(block);
}

Status Heap::unback(Block &block) {
  switch (block.backing) {
  case Backing::None:
    return {};
  case Backing::Managed:
    break;
  case Backing::StandIn:
    PUMPGRAPH_TRY(mapper_.unmapHandle(block.address, block.bytes()));
    if (--stoodIn_ == 0)
      pool_.releaseWideStandIns();
    break;
  case Backing::Planned:
    assert(false && "a plan's frames are not the block's to give back");
    return {};
  case Backing::Device:
  case Backing::Piece:
  case Backing::Host: {
    const Memory memory = memoryOf(block);
    PUMPGRAPH_TRY(unmapMemory(block.address, block.pages, memory));
    giveMemory(memory, block.pages);
    break;
  }
  }
  setMemory(block, {});
  return {};
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
      (void)standIn(*blocks_[id], 1);
}

Expected<BlockId> Heap::reserve(std::uint64_t pages) {
  const Expected<CUdeviceptr> address = addresses_.carveApart(pages);
  if (!address)
    return tl::unexpected<Error>(address.error());
  return addBlock(*address, pages, false).id;
}

void Heap::giveUp(BlockId reserved) {
  if (block(reserved).backing == Backing::None)
    destroyBlock(block(reserved));
}

std::uint64_t Heap::capturedPages() const {
  std::set<BlockId> blocks;
  std::uint64_t pages = 0;
  for (const Hit &hit : captured_)
    pages += blocks.insert(hit.block).second ? block(hit.block).pages : 0;
  return pages;
}

bool Heap::hasFramesFor(std::uint64_t pagesBeside) const {
  for (const std::unique_ptr<Block> &block : blocks_)
    pagesBeside += block && block->backing == Backing::Host ? block->pages : 0;
  return pagesBeside <= pool_.available();
}

bool Heap::isInUse(const Block &block) const {
  return std::any_of(block.members.begin(), block.members.end(),
                     [&](const Allocation &member) { return isReachable(member, capture_); });
}

bool Heap::isOfCapture(const Block &block) const {
  return capture_ != 0 && block.retainers == 0 &&
         std::all_of(block.members.begin(), block.members.end(),
                     [&](const Allocation &member) { return member.bornIn == capture_; });
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
    Status given = contents.backing == Backing::StandIn ? standIn(owner, 1)
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
      PUMPGRAPH_TRY(standIn(owner, 1));
    else if (!contents.bytes.empty())
      PUMPGRAPH_TRY(back(owner));
    PUMPGRAPH_TRY(write(contents, stream));
  }
  return {};
}

void Heap::retain(Block &block) {
  ++block.retainers;
  // Nothing else may move into a page that a step may send away.
  forgetSlots(block.id);
  if (openShared_ == block.id)
    openShared_.reset();
}

void Heap::release(Block &block) {
  assert(block.retainers != 0);
  --block.retainers;
  assert((block.retainers != 0 || block.backing != Backing::Planned) && "the last step gives the frames back first");
  if (block.retainers == 0 && !block.hasLiveMember())
    destroyBlock(block);
}

Status Heap::flushCache(std::uint64_t wanted) {
  std::vector<BlockId> idle;
  const auto isNoGraphs = [](const auto &entry) { return std::get<GraphNumber>(entry.first) == 0; };
  for (const auto &entry : cachedBlocks_)
    if (isNoGraphs(entry))
      idle.insert(idle.end(), entry.second.begin(), entry.second.end());
  // What a capture freed is not idle while the capture waits to be adopted: its graph uses it.
  for (const std::unique_ptr<Block> &block : blocks_)
    if (block && block->shared && block->retainers == 0 && block->hasMemory() && !isInUse(*block))
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
    if (done)
      destroyBlock(block);
  }
  for (auto &[place, cached] : cachedBlocks_)
    std::erase_if(cached, [&](BlockId id) { return !blocks_[id]; });
  forgetDestroyed();
  return done;
}

} // namespace pumpgraph::runtime
