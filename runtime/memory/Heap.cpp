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

std::string allocating(std::uint64_t size, std::string_view name) {
  return fmt::format("allocating {}{}", bytesText(size), name.empty() ? "" : fmt::format(" \"{}\"", name));
}

} // namespace

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
  if (!address && keepsAddresses_) {
    dropKeptAddresses();
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
  if (const Status backed = capturing_ ? memory_.standIn(created, pages)
                            : onHost   ? backOnHost(created)
                                       : back(created, mayWait);
      !backed) {
    destroyBlock(created);
    return tl::unexpected<Error>(backed.error());
  }
  return &created;
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
    if (const std::optional<BlockId> cached = takeCached(pages, stream, graph)) {
      Block &reused = block(*cached);
      if (const Status backed = backAgain(reused, graph); !backed) {
        keptAddresses_[pages].push_back(reused.id);
        return inContext(backed.error(), allocating(size, name));
      }
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

Status Heap::backAgain(Block &block, GraphNumber graph) {
  return keepsAddresses_ && !capturing_ && block.backing == Backing::None ? back(block, graph == 0) : Status{};
}

std::optional<BlockId> Heap::takeCached(std::uint64_t pages, CUstream stream, GraphNumber graph) {
  std::vector<BlockId> &own = cachedBlocks_[{graph, pages, stream}];
  std::vector<BlockId> none;
  std::vector<BlockId> &kept = graph == 0 ? keptAddresses_[pages] : none;
  for (std::vector<BlockId> *places : {&own, &kept}) {
    const auto wished = std::find_if(places->begin(), places->end(),
                                     [&](BlockId id) { return wished_ != 0 && addressOf(id) == wished_; });
    if (wished == places->end())
      continue;
    const BlockId taken = *wished;
    places->erase(wished);
    return taken;
  }
  for (std::vector<BlockId> *places : {&own, &kept})
    if (!places->empty())
      return takeReusable(*places);
  return std::nullopt;
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
      if (const Status backed = backAgain(block(slot.block), graph); !backed) {
        slots.push_back(slot);
        return inContext(backed.error(), allocating(size, name));
      }
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
  if (const Status backed = backAgain(shared, graph); !backed)
    return inContext(backed.error(), allocating(size, name));
  Allocation &member = shared.members.emplace_back();
  member.offset = shared.usedBytes;
  member.room = room;
  shared.usedBytes += room;
  return handOut(shared, shared.members.size() - 1, size, stream, name, graph);
}

CUdeviceptr Heap::handOut(Block &block, std::size_t member, std::uint64_t size, CUstream stream, std::string_view name,
                          GraphNumber graph) {
  Allocation &allocation = block.members[member];
  const TagId tag = tags_.ofThread();
  if (allocation.kept)
    kept_[{graph, graph}].erase({block.id, member});
  allocation = {.offset = allocation.offset,
                .size = size,
                .room = allocation.room,
                .serial = ++lastSerial_,
                .name = name.empty() && tag != noTag ? tags_.nameOf(tag) : std::string(name),
                .tag = tag,
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
  stats_.allocated(size);
  if (tag != noTag)
    tags_.allocated(tag, size);
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
  stats_.freed(allocation.size);
  if (allocation.tag != noTag)
    tags_.freed(allocation.tag, allocation.size);
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

void Heap::offer(const Block &owner, std::size_t member, GraphNumber graph) {
  const Allocation &allocation = owner.members[member];
  if (owner.shared)
    freeSlots_[{graph, allocation.room, allocation.stream}].push_back({owner.id, member});
  else
    cachedBlocks_[{graph, owner.pages, allocation.stream}].push_back(owner.id);
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
  if (!owner.members[member].isReachable(capture_))
    return std::nullopt;
  return Hit{owner.id, member, fromStart - static_cast<std::int64_t>(owner.members[member].offset)};
}

bool Heap::holdsValue(std::uint64_t address, std::uint64_t bytes) const {
  const std::optional<BlockId> id = blockAround(address);
  if (!id)
    return false;
  const Block &owner = *blocks_[*id];
  const std::uint64_t begin = address - owner.address;
  return std::any_of(owner.members.begin(), owner.members.end(), [&](const Allocation &member) {
    return member.isReachable(capture_) && member.offset <= begin && begin + bytes <= member.offset + member.size;
  });
}

std::optional<BlockId> Heap::blockAround(std::uint64_t word) const {
  if (!addresses_.contains(word))
    return std::nullopt;
  const std::uint64_t page = addresses_.pageIndex(word);
  if (page >= blockOfPage_.size() || blockOfPage_[page] < 0)
    return std::nullopt;
  return static_cast<BlockId>(blockOfPage_[page]);
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

} // namespace pumpgraph::runtime
