// SPDX-License-Identifier: Apache-2.0
#include "runtime/lower/Residence.h"

#include "pumpgraph/graph/CopyRows.h"

#include <algorithm>

namespace pumpgraph::runtime {

namespace {

void markPages(std::vector<bool> &pages, const std::vector<Range> &ranges) {
  for (const Range &range : ranges)
    for (std::uint64_t page = range.offset / pageBytes; page < pagesFor(range.end()); ++page)
      pages[page] = true;
}

} // namespace

PlannedBlock Residence::plannedBlock(const Description &lowered, BufferIndex index, BlockId block,
                                     const HostedChains &chains) {
  const Buffer &buffer = lowered.buffers[index];
  const std::uint64_t pages = lowered.pageCount(index);
  PlannedBlock planned;
  planned.block = block;
  planned.bytes = buffer.size;
  planned.isPrivate = buffer.isPrivate;
  planned.isPresent = buffer.isPresent;
  planned.plan = buffer.frames;
  planned.plan.resize(pages, noFrame);
  planned.resident.assign(pages, !buffer.isPrivate);
  planned.mirrored.assign(pages, false);
  markPages(planned.resident, buffer.resident);
  markPages(planned.mirrored, buffer.mirrored);
  planned.hosted.assign(pages, false);
  markPages(planned.hosted, buffer.hosted);
  const std::vector<Range> shared = chains.of(index); // cut where others begin or end, with whom it shares memory
  for (const Range &range : shared.empty() ? buffer.hosted : shared)
    if (overlaps(buffer.hosted, range))
      planned.hostedRuns.push_back({range.offset / pageBytes, pagesFor(range.size), nullptr});
  planned.place.assign(pages, noPlace);
  planned.hasValue = buffer.liveIn || buffer.liveOut;
  planned.everyPageResident =
      std::find(planned.resident.begin(), planned.resident.end(), false) == planned.resident.end();
  return planned;
}

void Residence::add(const Description &lowered, const std::vector<BlockId> &blocks, const ReservedBlocks &reserved) {
  const bool isFirst = blocks_.empty() && pools_.bytes() == 0;
  const HostedChains chains(lowered.buffers);
  for (BufferIndex index = 0; index < blocks.size(); ++index) {
    PlannedBlock planned = plannedBlock(lowered, index, blocks[index], chains);
    planned.chain = blocks[capturedBuffer(lowered.buffers, index)];
    for (std::int32_t &frame : planned.plan) {
      if (!isFirst && frame != noFrame && static_cast<std::uint64_t>(frame) >= knownFrames_)
        frame += static_cast<std::int32_t>(unknownFrames_);
      if (frame != noFrame && static_cast<std::size_t>(frame) >= physical_.size())
        physical_.resize(static_cast<std::size_t>(frame) + 1, noFrame);
    }
    const auto [position, isNew] = positions_.emplace(blocks[index], blocks_.size());
    if (isNew) {
      blocks_.push_back(std::move(planned));
      continue;
    }
    // The same memory: the boundary was kept. A page that had no frame may have one now.
    std::vector<std::int32_t> &plan = blocks_[position->second].plan;
    for (std::size_t page = 0; page < plan.size(); ++page)
      if (plan[page] == noFrame)
        plan[page] = planned.plan[page];
  }
  for (const std::shared_ptr<const ReservedBlock> &block : reserved)
    find(block->id())->reserved = block;
  std::vector<std::vector<bool>> moved(blocks.size());
  for (const Node &node : lowered.nodes) {
    if (!isCopy(node.kind) || chains.at(node.buffer, node.range.offset) != noBuffer)
      continue;
    PlannedBlock &planned = *find(blocks[node.buffer]);
    moved[node.buffer].resize(planned.place.size(), false);
    markPages(moved[node.buffer], {node.range});
    for (std::uint64_t offset = node.range.offset; isFirst && offset < node.range.end(); offset += pageBytes)
      planned.place[offset / pageBytes] = node.hostOffset + (offset - node.range.offset);
  }
  // A page whose value is in the pool at the boundary needs a place, even if no copy moves it.
  hostBytes_ = roundUp(isFirst ? lowered.hostBytes : pools_.bytes(), 512);
  for (BufferIndex index = 0; index < blocks.size(); ++index) {
    PlannedBlock &planned = *find(blocks[index]);
    for (std::size_t page = 0; page < planned.place.size(); ++page) {
      const bool inPool =
          planned.hasValue && !planned.hosted[page] && (!planned.resident[page] || planned.mirrored[page]);
      if ((!inPool && (moved[index].empty() || !moved[index][page])) || planned.place[page] != noPlace)
        continue;
      planned.place[page] = hostBytes_;
      hostBytes_ += pageBytes;
    }
  }
}

std::unique_ptr<Residence> Residence::forStep(const std::vector<BlockId> &known) const {
  std::unique_ptr<Residence> other(new Residence(tools_));
  const std::set<BlockId> isKnown(known.begin(), known.end());
  std::set<std::int32_t> used, unknown;
  std::vector<std::uint64_t> places;
  for (const PlannedBlock &planned : blocks_) {
    if (isKnown.contains(planned.block) && planned.isPrivate && !planned.hasValue)
      continue;
    other->positions_.emplace(planned.block, other->blocks_.size());
    other->blocks_.push_back(planned);
    other->blocks_.back().frames.clear();
    for (std::size_t page = 0; page < planned.plan.size(); ++page) {
      if (planned.place[page] != noPlace)
        places.push_back(planned.place[page]);
      if (planned.plan[page] == noFrame)
        continue;
      used.insert(planned.plan[page]);
      if (planned.resident[page] && !isKnown.contains(planned.block))
        unknown.insert(planned.plan[page]);
    }
  }
  std::map<std::int32_t, std::int32_t> numbers;
  for (const bool last : {false, true})
    for (const std::int32_t frame : used)
      if (unknown.contains(frame) == last)
        numbers.emplace(frame, static_cast<std::int32_t>(numbers.size()));
  for (PlannedBlock &planned : other->blocks_)
    for (std::int32_t &frame : planned.plan)
      frame = frame == noFrame ? noFrame : numbers.at(frame);
  for (const auto &[rows, mapped] : rows_)
    if (std::all_of(rows.pages.begin(), rows.pages.end(),
                    [&](const RowPage &page) { return other->positions_.contains(page.first); }))
      other->rows_[rows].addresses = mapped.addresses;
  other->physical_.assign(used.size(), noFrame);
  other->knownFrames_ = used.size() - unknown.size();
  other->unknownFrames_ = unknown.size();
  std::sort(places.begin(), places.end());
  other->pools_ = pools_.only(places);
  other->hostBytes_ = pools_.bytes();
  return other;
}

Expected<Description> Residence::boundaryFor(const Description &step, const std::vector<BlockId> &blocks) const {
  Description boundary;
  boundary.name = step.name;
  boundary.stage = Stage::LoweredVirtual; // its copies tell places in the pool
  boundary.pageBytes = step.pageBytes;
  boundary.budgetBytes = knownFrames_ * pageBytes;
  boundary.hostBytes = pools_.bytes();
  boundary.buffers = step.buffers;
  const auto rangesOf = [&](const std::vector<bool> &pages, std::uint64_t size) {
    std::vector<Range> ranges;
    for (std::uint64_t page = 0; page < pages.size(); ++page) {
      if (!pages[page])
        continue;
      const std::uint64_t begin = page * pageBytes, bytes = std::min(pageBytes, size - begin);
      if (!ranges.empty() && ranges.back().end() == begin)
        ranges.back().size += bytes;
      else
        ranges.push_back({begin, bytes});
    }
    return ranges;
  };
  for (BufferIndex index = 0; index < blocks.size(); ++index) {
    Buffer &buffer = boundary.buffers[index];
    const PlannedBlock *planned = find(blocks[index]);
    if (!planned)
      continue;
    if (planned->isPrivate != buffer.isPrivate || planned->bytes != buffer.size)
      return fail(PUMPGRAPH_UNPLANNABLE, "\"{}\" {}", buffer.name,
                  planned->bytes != buffer.size ? "has another size now"
                  : buffer.isPrivate            ? "is exclusive to other steps"
                                                : "moves in other steps, but may not in this one");
    buffer.frames = planned->plan;
    if (!buffer.isPrivate)
      continue;
    buffer.resident = rangesOf(planned->resident, buffer.size);
    buffer.mirrored = rangesOf(planned->mirrored, buffer.size);
    buffer.hosted = rangesOf(planned->hosted, buffer.size);
    for (std::uint64_t page = 0; page < planned->place.size(); ++page) {
      if (planned->place[page] == noPlace)
        continue;
      Node &copy = boundary.nodes.emplace_back();
      copy.kind = NodeKind::CopyToHost;
      copy.buffer = index;
      copy.range = {page * pageBytes, std::min(pageBytes, buffer.size - page * pageBytes)};
      copy.hostOffset = planned->place[page];
    }
  }
  return boundary;
}

Description Residence::withPlaces(const Description &lowered, const std::vector<BlockId> &blocks) const {
  const HostedChains chains(lowered.buffers);
  Description placed = withNodesCut(lowered, [&](const Node &node) {
    if (!isCopy(node.kind) || chains.at(node.buffer, node.range.offset) != noBuffer)
      return std::vector{node};
    const std::vector<std::uint64_t> &place = find(blocks[node.buffer])->place;
    std::vector<Node> parts;
    for (std::uint64_t offset = node.range.offset; offset < node.range.end(); offset += pageBytes) {
      const std::uint64_t at = place[offset / pageBytes];
      if (parts.empty() || parts.back().hostOffset + parts.back().range.size != at) {
        Node &part = parts.emplace_back(node);
        part.range = {offset, 0};
        part.hostOffset = at;
      }
      parts.back().range.size += std::min(pageBytes, node.range.end() - offset);
    }
    return parts;
  });
  placed.hostBytes = hostBytes_;
  keepPossibleRows(placed);
  std::vector<NodeIndex> apart;
  const JoinedCopies joined(placed);
  for (const CopyRows &rows : joined.all()) {
    const CopyRows ascending = joined.inHostOrder(rows);
    const Node &last = placed.nodes[ascending.back()];
    const std::uint64_t begin = placed.nodes[ascending.front()].hostOffset;
    // What there is no memory for yet will be one piece.
    if (begin < pools_.bytes() && !pools_.holds(begin, last.hostOffset + last.range.size - begin))
      apart.insert(apart.end(), rows.begin() + 1, rows.end());
  }
  for (const NodeIndex node : apart)
    placed.nodes[node].joined = false;
  return placed;
}

Residence::Rows Residence::rowsOf(const Description &lowered, const std::vector<NodeIndex> &nodes,
                                  const std::vector<BlockId> &blocks) {
  Rows rows;
  for (const NodeIndex node : nodes) {
    const Node &copy = lowered.nodes[node];
    rows.pages.emplace_back(blocks[copy.buffer], copy.range.offset / pageBytes);
    rows.pagesPerRow = pagesFor(copy.range.size);
  }
  return rows;
}

Status Residence::addRows(const Description &placed, const std::vector<BlockId> &blocks) {
  const JoinedCopies joined(placed);
  for (const CopyRows &nodes : joined.all()) {
    const Rows rows = rowsOf(placed, joined.inHostOrder(nodes), blocks);
    if (rows_.contains(rows))
      continue;
    const std::uint64_t pages = rows.pages.size() * rows.pagesPerRow;
    const Expected<CUdeviceptr> address = tools_.addresses.carveApart(pages);
    if (!address)
      return inContext(address.error(), "addresses for the rows of a copy");
    rows_[rows].addresses = std::make_shared<RowAddresses>(tools_.addresses, *address, pages);
  }
  return {};
}

const Residence::Rows *Residence::rowsAt(CUdeviceptr address) const {
  const auto found = std::find_if(rows_.begin(), rows_.end(),
                                  [&](const auto &rows) { return rows.second.addresses->address() == address; });
  return found == rows_.end() ? nullptr : &found->first;
}

Status Residence::mapRows() {
  for (auto &[rows, mapped] : rows_) {
    std::vector<FrameId> frames;
    for (const auto &[block, first] : rows.pages)
      for (std::uint64_t page = first; page < first + rows.pagesPerRow; ++page)
        frames.push_back(find(block)->frames[page]);
    PUMPGRAPH_TRY(tools_.mapper.mapFrames(mapped.addresses->address(), frames));
    mapped.frames = std::move(frames);
  }
  return {};
}

Status Residence::unmapRows() {
  for (auto &[rows, mapped] : rows_)
    PUMPGRAPH_TRY(tools_.mapper.unmapFrames(mapped.addresses->address(), std::exchange(mapped.frames, {})));
  return {};
}

std::vector<BlockId> Residence::blocksInFramesBeside(const std::vector<BlockId> &known) const {
  const std::set<BlockId> isKnown(known.begin(), known.end());
  std::vector<BlockId> beside;
  for (const PlannedBlock &planned : blocks_)
    if (!isKnown.contains(planned.block) &&
        std::find(planned.resident.begin(), planned.resident.end(), true) != planned.resident.end())
      beside.push_back(planned.block);
  return beside;
}

void Residence::forget(const std::set<BlockId> &blocks) {
  std::erase_if(blocks_, [&](const PlannedBlock &planned) { return blocks.contains(planned.block); });
  std::erase_if(rows_, [&](const auto &rows) {
    return std::any_of(rows.first.pages.begin(), rows.first.pages.end(),
                       [&](const RowPage &page) { return blocks.contains(page.first); });
  });
  positions_.clear();
  for (std::size_t position = 0; position < blocks_.size(); ++position)
    positions_.emplace(blocks_[position].block, position);
}

Status Residence::pin() {
  if (pools_.bytes() == 0 || hostBytes_ > pools_.bytes()) {
    Expected<std::unique_ptr<PinnedPool>> pool =
        PinnedPool::create(tools_.driver, tools_.host, hostBytes_ - pools_.bytes());
    if (!pool)
      return tl::unexpected<Error>(pool.error());
    pools_.add(std::move(*pool));
  }
  std::map<std::pair<BlockId, std::uint64_t>, std::shared_ptr<HostBacking>> shared; // by chain and first page
  for (PlannedBlock &planned : blocks_)
    for (HostedRun &run : planned.hostedRuns) {
      std::shared_ptr<HostBacking> &memory = shared[{planned.chain, run.firstPage}];
      if (!memory)
        memory = run.memory;
      if (!memory) {
        Expected<std::shared_ptr<HostBacking>> created = HostBacking::create(tools_.host, run.pages * pageBytes);
        if (!created)
          return tl::unexpected<Error>(created.error());
        memory = std::move(*created);
      }
      run.memory = memory;
    }
  return {};
}

PlannedBlock *Residence::find(BlockId block) {
  return const_cast<PlannedBlock *>(static_cast<const Residence *>(this)->find(block));
}

const PlannedBlock *Residence::find(BlockId block) const {
  const auto found = positions_.find(block);
  return found == positions_.end() ? nullptr : &blocks_[found->second];
}

std::map<FrameId, std::int32_t> Residence::numbersOfFrames() const {
  std::map<FrameId, std::int32_t> numbers;
  for (std::size_t number = 0; number < physical_.size(); ++number)
    if (physical_[number] != noFrame)
      numbers.emplace(physical_[number],
                      static_cast<std::int32_t>(number < knownFrames_ ? number : number - unknownFrames_));
  return numbers;
}

std::set<BlockId> Residence::blocks() const {
  std::set<BlockId> blocks;
  for (const PlannedBlock &planned : blocks_)
    blocks.insert(planned.block);
  return blocks;
}

std::uint64_t Residence::framesWanted() const {
  std::set<std::int32_t> frames;
  for (const PlannedBlock &planned : blocks_)
    frames.insert(planned.plan.begin(), planned.plan.end());
  frames.erase(noFrame);
  return frames.size();
}

std::uint64_t Residence::frameCount() const {
  return static_cast<std::uint64_t>(
      std::count_if(physical_.begin(), physical_.end(), [](FrameId frame) { return frame != noFrame; }));
}

bool Residence::isWhollyResident(BlockId block) const {
  const PlannedBlock *planned = find(block);
  return !planned || (planned->everyPageResident && !planned->hasMirror());
}

} // namespace pumpgraph::runtime
