// SPDX-License-Identifier: Apache-2.0
// Putting a plan's memory in force, taking it back, and values meanwhile.
#include "runtime/lower/Residence.h"

#include <algorithm>

namespace pumpgraph::runtime {

namespace {

/// Host memory that nothing is mapped to yet. What is not taken goes back.
class HostPieces {
public:
  explicit HostPieces(HostMemory &host) : host_(host) {}
  ~HostPieces() {
    for (const auto &[handle, bytes] : pieces_)
      if (handle != 0)
        host_.releaseBacking(handle, bytes);
  }
  HostPieces(const HostPieces &) = delete;
  HostPieces &operator=(const HostPieces &) = delete;

  Status add(std::uint64_t bytes) {
    const Expected<CUmemGenericAllocationHandle> handle = host_.createBacking(bytes);
    if (!handle)
      return tl::unexpected<Error>(handle.error());
    pieces_.emplace_back(*handle, bytes);
    return {};
  }
  /// The piece; 0 once somebody took it.
  CUmemGenericAllocationHandle &handle(std::size_t index) { return pieces_[index].first; }

private:
  HostMemory &host_;
  std::vector<std::pair<CUmemGenericAllocationHandle, std::uint64_t>> pieces_;
};

} // namespace

/// A resident page that has a frame already keeps it: then its value need not move.
Status Residence::keepResidentFrames() {
  std::fill(physical_.begin(), physical_.end(), noFrame);
  std::set<std::int32_t> taken;
  for (const PlannedBlock &planned : blocks_) {
    const Block &block = tools_.heap.block(planned.block);
    for (std::size_t page = 0; page < planned.plan.size(); ++page) {
      const std::int32_t frame = planned.plan[page];
      if (!planned.resident[page] || frame == noFrame)
        continue;
      if (!taken.insert(frame).second)
        return fail(PUMPGRAPH_INTERNAL, "the plan keeps two pages in frame {} at the step boundary", frame);
      if (block.backing == Backing::Device)
        physical_[static_cast<std::size_t>(frame)] = block.frames[page];
    }
  }
  return {};
}

/// What install() needs from one of its steps to the next.
struct Residence::Change {
  std::set<std::int32_t> used;                        ///< frame numbers of the plan
  std::vector<FrameId> freed;                         ///< frames of blocks' own that the plan may use otherwise
  std::map<BlockId, std::unique_ptr<Window>> windows; ///< onto host memory whose blocks' addresses are mapped anew
};

Status Residence::prepare(Change &change) {
  for (const PlannedBlock &planned : blocks_)
    change.used.insert(planned.plan.begin(), planned.plan.end());
  change.used.erase(noFrame);
  const std::set<FrameId> kept(physical_.begin(), physical_.end());
  for (const PlannedBlock &planned : blocks_)
    for (const FrameId frame : tools_.heap.block(planned.block).frames)
      if (!kept.contains(frame))
        change.freed.push_back(frame);
  const auto missing =
      static_cast<std::uint64_t>(std::count_if(change.used.begin(), change.used.end(), [&](std::int32_t frame) {
        return physical_[static_cast<std::size_t>(frame)] == noFrame;
      }));
  if (missing > change.freed.size())
    PUMPGRAPH_TRY_WHILE(tools_.frames.ensureFree(missing - change.freed.size()),
                        "getting {} device frames for the plan", change.used.size());
  for (const PlannedBlock &planned : blocks_) {
    const Block &block = tools_.heap.block(planned.block);
    if (block.backing != Backing::Host || !planned.hasValue)
      continue;
    auto window = std::make_unique<Window>(tools_);
    PUMPGRAPH_TRY(window->open(block.pages, block.hostHandle));
    change.windows.emplace(planned.block, std::move(window));
  }
  return {};
}

Status Residence::saveLeavingValues() {
  for (const PlannedBlock &planned : blocks_) {
    const Block &block = tools_.heap.block(planned.block);
    if (!planned.hasValue || !block.hasMemory())
      continue;
    PUMPGRAPH_TRY(copies().copyPlaces(planned, block.address, true));
    PUMPGRAPH_TRY(copies().copyHosted(planned, block.address, true));
  }
  return waitForDevice(tools_, "memory is mapped anew");
}

Status Residence::remap(const Change &change) {
  const auto stays = [](const PlannedBlock &planned, const Block &block) {
    return block.backing == Backing::Device && planned.everyPageResident;
  };
  for (const PlannedBlock &planned : blocks_) {
    Block &block = tools_.heap.block(planned.block);
    if (block.backing == Backing::Device && !stays(planned, block))
      PUMPGRAPH_TRY(tools_.mapper.unmapFrames(block.address, block.frames));
    if (block.backing == Backing::Host)
      PUMPGRAPH_TRY(tools_.mapper.unmapHandle(block.address, block.bytes()));
    if (block.backing == Backing::StandIn)
      PUMPGRAPH_TRY(tools_.heap.unback(block));
  }
  for (const FrameId frame : change.freed)
    tools_.frames.give(frame);
  for (const std::int32_t frame : change.used) {
    FrameId &physical = physical_[static_cast<std::size_t>(frame)];
    if (physical == noFrame)
      physical = *tools_.frames.take(); // there are enough: prepare()
  }
  for (PlannedBlock &planned : blocks_) {
    Block &block = tools_.heap.block(planned.block);
    planned.frames.clear();
    for (const std::int32_t frame : planned.plan)
      planned.frames.push_back(frame == noFrame ? noFrame : physical_[static_cast<std::size_t>(frame)]);
    const bool isMapped = stays(planned, block);
    block.backing = Backing::Planned; // whatever fails: nobody else may have the addresses then
    block.frames = planned.frames;
    if (!isMapped)
      PUMPGRAPH_TRY(mapPlanned(tools_, planned));
  }
  return mapRows();
}

/// After this the frames of resident pages have their values, and so have the places of mirrored ones.
Status Residence::bringHostValues(Change &change) {
  for (const PlannedBlock &planned : blocks_) {
    const CUdeviceptr address = tools_.heap.block(planned.block).address;
    const auto window = change.windows.find(planned.block);
    if (window != change.windows.end())
      PUMPGRAPH_TRY(copies().copyResident(planned, window->second->address(), address));
    PUMPGRAPH_TRY(copies().copyMirrored(planned, address));
  }
  PUMPGRAPH_TRY(waitForDevice(tools_, "host memory is given up"));
  for (auto &[id, window] : change.windows)
    PUMPGRAPH_TRY(window->close());
  for (const PlannedBlock &planned : blocks_) {
    Block &block = tools_.heap.block(planned.block);
    if (block.hostHandle != 0)
      tools_.host.releaseBacking(std::exchange(block.hostHandle, 0), block.bytes());
  }
  return {};
}

Status Residence::install() {
  PUMPGRAPH_TRY(waitForDevice(tools_, "a plan is put in force"));
  PUMPGRAPH_TRY(keepResidentFrames());
  Change change;
  PUMPGRAPH_TRY(prepare(change));
  PUMPGRAPH_TRY(saveLeavingValues());
  // Up to here nothing has changed.
  lost_ = true;
  ++tools_.departures;
  PUMPGRAPH_TRY(remap(change));
  PUMPGRAPH_TRY(bringHostValues(change));
  lost_ = false;
  installed_ = true;
  return {};
}

/// Takes the host memory `handle`, and sets it to 0, once the block is in it.
Status Residence::moveToHost(PlannedBlock &planned, CUmemGenericAllocationHandle &handle) {
  Block &block = tools_.heap.block(planned.block);
  Window window(tools_);
  PUMPGRAPH_TRY(window.open(block.pages, handle));
  if (planned.hasValue) {
    PUMPGRAPH_TRY(copies().copyResident(planned, block.address, window.address()));
    PUMPGRAPH_TRY(copies().copyPlaces(planned, window.address(), false));
    PUMPGRAPH_TRY(copies().copyHosted(planned, window.address(), false));
    PUMPGRAPH_TRY(waitForDevice(tools_, "memory is mapped anew"));
  }
  PUMPGRAPH_TRY(window.close());
  installed_ = false; // from here on the plan is no longer in force, whatever fails
  lost_ = true;
  PUMPGRAPH_TRY(unmapPlanned(tools_, planned));
  block.frames.clear();
  PUMPGRAPH_TRY(tools_.mapper.mapHandle(block.address, block.bytes(), handle));
  block.hostHandle = std::exchange(handle, 0);
  block.backing = Backing::Host;
  return {};
}

Status Residence::moveToOwnFrames(const std::vector<PlannedBlock *> &moving) {
  for (const PlannedBlock *planned : moving)
    if (!planned->everyPageResident)
      PUMPGRAPH_TRY(unmapPlanned(tools_, *planned));
  std::set<FrameId> kept;
  for (const PlannedBlock *planned : moving)
    for (const FrameId frame : planned->residentFrames())
      kept.insert(frame);
  for (const FrameId frame : physical_)
    if (frame != noFrame && !kept.contains(frame))
      tools_.frames.give(frame);
  for (const PlannedBlock *planned : moving) {
    Block &block = tools_.heap.block(planned->block);
    block.frames = planned->residentFrames();
    for (FrameId &frame : block.frames) {
      if (frame != noFrame)
        continue;
      const Expected<FrameId> taken = tools_.frames.take();
      if (!taken)
        return tl::unexpected<Error>(taken.error());
      frame = *taken;
    }
    if (!planned->everyPageResident)
      PUMPGRAPH_TRY(tools_.mapper.mapFrames(block.address, block.frames));
    block.backing = Backing::Device;
    if (planned->hasValue)
      PUMPGRAPH_TRY(copies().copyPlaces(*planned, block.address, false));
    PUMPGRAPH_TRY(copies().copyHosted(*planned, block.address, false));
  }
  return waitForDevice(tools_, "the plan's frames are used otherwise");
}

Status Residence::remove(Keep keep, const std::set<BlockId> &toHostMemory, const std::vector<BlockId> *step) {
  if (!installed_)
    return {};
  PUMPGRAPH_TRY(waitForDevice(tools_, "a plan is taken back"));
  PUMPGRAPH_TRY(loans_.settle());
  loans_.releaseMemory();
  // Wholly resident blocks are where they should be; the rest gets what is left of the budget, in order.
  std::uint64_t capacity = frameCount() + tools_.frames.available();
  std::vector<PlannedBlock *> toFrames, toHost, toNothing;
  std::uint64_t hostBytes = 0;
  const auto place = [&](PlannedBlock &block) {
    const Block &owner = tools_.heap.block(block.block);
    const bool isStep = !step || std::find(step->begin(), step->end(), block.block) != step->end();
    const bool kept = !block.reserved && ((keep == Keep::EveryBlock && isStep) || owner.hasLiveMember() ||
                                          owner.retainers > 1 || (keep != Keep::Allocations && block.hasValue));
    if (!kept) {
      toNothing.push_back(&block);
      return;
    }
    if (owner.pages <= capacity && !toHostMemory.contains(block.block)) {
      capacity -= owner.pages;
      toFrames.push_back(&block);
      return;
    }
    hostBytes += owner.bytes();
    toHost.push_back(&block);
  };
  for (const bool resident : {true, false})
    for (PlannedBlock &block : blocks_)
      if (block.everyPageResident == resident)
        place(block);
  PUMPGRAPH_TRY(tools_.host.checkRoom(hostBytes, "giving every buffer of the step memory of its own"));
  HostPieces pieces(tools_.host);
  for (const PlannedBlock *block : toHost)
    PUMPGRAPH_TRY(pieces.add(tools_.heap.block(block->block).bytes()));

  for (std::size_t i = 0; i < toHost.size(); ++i)
    PUMPGRAPH_TRY(moveToHost(*toHost[i], pieces.handle(i)));
  installed_ = false;
  lost_ = true;
  for (PlannedBlock *block : toNothing) {
    Block &owner = tools_.heap.block(block->block);
    PUMPGRAPH_TRY(unmapPlanned(tools_, *block));
    owner.frames.clear();
    owner.backing = Backing::None;
  }
  PUMPGRAPH_TRY(unmapRows());
  PUMPGRAPH_TRY(moveToOwnFrames(toFrames));
  std::fill(physical_.begin(), physical_.end(), noFrame);
  lost_ = false;
  return {};
}

Status Residence::removeMidway(const std::map<BlockId, Midway> &midway) {
  const std::vector<PlannedBlock> boundary = blocks_;
  for (const auto &[id, now] : midway) {
    PlannedBlock &planned = *find(id);
    planned.resident = now.onDevice;
    planned.mirrored.assign(planned.mirrored.size(), false);
    planned.hasValue = now.hasValue;
    planned.everyPageResident =
        std::find(planned.resident.begin(), planned.resident.end(), false) == planned.resident.end();
  }
  const Status removed = remove(Keep::Values);
  for (std::size_t position = 0; position < blocks_.size(); ++position) {
    PlannedBlock &planned = blocks_[position];
    planned.resident = boundary[position].resident;
    planned.mirrored = boundary[position].mirrored;
    planned.hasValue = boundary[position].hasValue;
    planned.everyPageResident = boundary[position].everyPageResident;
  }
  return removed;
}

void Residence::abandon() {
  if (!installed_)
    return;
  // Nobody is left to tell about a failure, and the driver takes everything back in the end.
  tools_.driver.ctxSynchronize.raw();
  (void)unmapRows();
  for (PlannedBlock &planned : blocks_) {
    Block &block = tools_.heap.block(planned.block);
    (void)loans_.unmap(planned);
    block.frames.clear();
    block.backing = Backing::None;
  }
  loans_.abandon();
  installed_ = false;
}

Status Residence::lend(BlockId block) {
  return installed_ ? loans_.bring({&block, 1}, Use::Write, true) : Status{};
}

Status Residence::giveBack(BlockId block) {
  return loans_.unpin(block) ? loans_.settle() : Status{};
}

Status Residence::bring(std::span<const BlockId> blocks, Use use) {
  return installed_ ? loans_.bring(blocks, use, false) : Status{};
}

Status Residence::readValue(BlockId block, char *target) {
  const PlannedBlock &planned = *find(block);
  const CUdeviceptr address = tools_.heap.block(planned.block).address;
  for (const PlannedBlock::Piece &piece : planned.pieces()) {
    if (!piece.isAtAddress()) {
      std::copy_n(pools_.at(piece.place), piece.bytes, target + piece.offset);
      continue;
    }
    PUMPGRAPH_TRY_WHILE(
        tools_.driver.memcpyDtoHAsync(target + piece.offset, address + piece.offset, piece.bytes, tools_.stream),
        "reading {} of block {}", bytesText(piece.bytes), planned.block);
  }
  PUMPGRAPH_TRY_WHILE(tools_.driver.streamSynchronize(tools_.stream), "reading block {}", planned.block);
  return {};
}

std::optional<std::uint64_t> Residence::firstStale(BlockId block, const char *value) const {
  for (const PlannedBlock::Piece &piece : find(block)->pieces()) {
    if (!piece.resident || piece.place == noPlace)
      continue;
    const char *begin = value + piece.offset, *end = begin + piece.bytes;
    const char *found = std::mismatch(begin, end, pools_.at(piece.place)).first;
    if (found != end)
      return static_cast<std::uint64_t>(found - value);
  }
  return std::nullopt;
}

Status Residence::writeValue(BlockId block, const char *source) {
  const PlannedBlock &planned = *find(block);
  const CUdeviceptr address = tools_.heap.block(planned.block).address;
  for (const PlannedBlock::Piece &piece : planned.pieces()) {
    if (piece.place != noPlace)
      std::copy_n(source + piece.offset, piece.bytes, pools_.at(piece.place));
    if (!piece.isAtAddress())
      continue;
    PUMPGRAPH_TRY_WHILE(
        tools_.driver.memcpyHtoDAsync(address + piece.offset, source + piece.offset, piece.bytes, tools_.stream),
        "writing {} of block {}", bytesText(piece.bytes), planned.block);
  }
  PUMPGRAPH_TRY_WHILE(tools_.driver.streamSynchronize(tools_.stream), "writing block {}", planned.block);
  return {};
}

} // namespace pumpgraph::runtime
