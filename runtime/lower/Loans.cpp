// SPDX-License-Identifier: Apache-2.0
#include "runtime/lower/Loans.h"

#include <limits>
#include <utility>

namespace pumpgraph::runtime {

namespace {

constexpr std::uint64_t pagesPerPool = 32;

} // namespace

Loans::~Loans() {
  // Nobody is left to tell about a failure.
  if (saved_)
    tools_.driver.eventDestroy.raw(saved_);
  if (saves_)
    tools_.driver.streamDestroy.raw(saves_);
}

void Loans::index() {
  known_.clear();
  residents_.clear();
  free_.clear();
  for (const PlannedBlock &planned : blocks_) {
    known_.emplace(planned.block, &planned);
    for (std::uint64_t page = 0; page < planned.frames.size(); ++page) {
      const FrameId frame = planned.frames[page];
      if (frame == noFrame)
        continue;
      free_.insert(frame);
      if (planned.resident[page])
        residents_.emplace(frame, Page{planned.block, page});
    }
  }
  for (const auto &[frame, page] : residents_)
    free_.erase(frame);
}

const PlannedBlock *Loans::find(BlockId block) const {
  const auto found = known_.find(block);
  return found == known_.end() ? nullptr : found->second;
}

CUdeviceptr Loans::addressOf(const PlannedBlock &planned, std::uint64_t page) const {
  return tools_.heap.block(planned.block).address + page * pageBytes;
}

char *Loans::hostPlace(const PlannedBlock &planned, std::uint64_t page) const {
  if (planned.resident[page]) {
    const auto displaced = displaced_.find({planned.block, page});
    return displaced == displaced_.end() ? nullptr : displaced->second;
  }
  const bool isAway = planned.hasValue && !planned.hosted[page] && planned.place[page] != noPlace;
  return isAway ? pools_.at(planned.place[page]) : nullptr;
}

const Loans::Page *Loans::residentIn(FrameId frame) const {
  const auto resident = residents_.find(frame);
  return resident == residents_.end() || displaced_.contains(resident->second) ? nullptr : &resident->second;
}

Status Loans::bring(std::span<const BlockId> blocks, Use use, bool isPinned) {
  PUMPGRAPH_TRY(waitForDevice(tools_, "values are brought to their addresses"));
  if (empty())
    index();
  nextResident_ = 0;
  const std::set<BlockId> together(blocks.begin(), blocks.end());
  for (const BlockId id : together) {
    const PlannedBlock *planned = find(id);
    if (!planned)
      continue;
    if (!loans_.contains(id))
      PUMPGRAPH_TRY(lend(*planned, together));
    Loan &loan = loans_.at(id);
    loan.isWritten = loan.isWritten || use != Use::Read;
    loan.pins += isPinned || use == Use::UntilReplay ? 1 : 0;
  }
  PUMPGRAPH_TRY(note(waitForDevice(tools_, "values are used at their addresses")));
  freeLeftSlots();
  return {};
}

bool Loans::unpin(BlockId block) {
  const auto loan = loans_.find(block);
  if (loan != loans_.end() && loan->second.pins > 0)
    --loan->second.pins;
  return std::none_of(loans_.begin(), loans_.end(), [](const auto &known) { return known.second.pins > 0; });
}

Status Loans::lend(const PlannedBlock &planned, const std::set<BlockId> &together) {
  Loan loan;
  Status claimed = claimFrames(planned, together, loan);
  if (!claimed) {
    releaseClaims(planned.block);
    return claimed;
  }
  if (loan.frames.empty()) {
    releaseClaims(planned.block);
    return lendInHostMemory(planned);
  }
  PUMPGRAPH_TRY(note(remap(planned, loan, true)));
  PUMPGRAPH_TRY(note(joinSaves()));
  PUMPGRAPH_TRY(note(copyIn(planned, loan)));
  loans_.emplace(planned.block, std::move(loan));
  return {};
}

/// Leaves the loan without frames where there are too few.
Status Loans::claimFrames(const PlannedBlock &planned, const std::set<BlockId> &together, Loan &loan) {
  std::vector<FrameId> frames(planned.frames.size(), noFrame);
  for (std::uint64_t page = 0; page < frames.size(); ++page) {
    if (planned.hosted[page])
      continue;
    const Page wanted{planned.block, page};
    const Expected<FrameId> frame = findFrame(wanted, planned.frames[page], together);
    if (!frame)
      return tl::unexpected<Error>(frame.error());
    if (*frame == noFrame)
      return {};
    PUMPGRAPH_TRY(vacate(*frame, wanted));
    lentTo_[*frame] = planned.block;
    free_.erase(*frame);
    frames[page] = *frame;
  }
  loan.frames = std::move(frames);
  return {};
}

Expected<FrameId> Loans::findFrame(const Page &page, FrameId own, const std::set<BlockId> &together) {
  if (own != noFrame && canTake(own, page, together))
    return own;
  for (;;) {
    if (!free_.empty())
      return *free_.begin();
    Expected<bool> isPutAway = putOneAway(false, together);
    if (isPutAway && !*isPutAway) {
      if (const FrameId frame = nextToDisplace(page, together); frame != noFrame)
        return frame;
      isPutAway = putOneAway(true, together);
    }
    if (!isPutAway)
      return tl::unexpected<Error>(isPutAway.error());
    if (!*isPutAway)
      return noFrame;
  }
}

Expected<bool> Loans::putOneAway(bool isWritten, const std::set<BlockId> &together) {
  const auto found = std::find_if(loans_.begin(), loans_.end(), [&](const auto &loan) {
    return loan.second.isWritten == isWritten && loan.second.pins == 0 && !together.contains(loan.first);
  });
  if (found == loans_.end())
    return false;
  if (const Status done = putAway(found->first); !done)
    return tl::unexpected<Error>(done.error());
  return true;
}

FrameId Loans::nextToDisplace(const Page &page, const std::set<BlockId> &together) {
  for (auto resident = residents_.lower_bound(nextResident_); resident != residents_.end(); ++resident)
    if (residentIn(resident->first) && canTake(resident->first, page, together)) {
      nextResident_ = resident->first;
      return resident->first;
    }
  nextResident_ = std::numeric_limits<FrameId>::max();
  return noFrame;
}

bool Loans::canTake(FrameId frame, const Page &page, const std::set<BlockId> &together) const {
  const auto lent = lentTo_.find(frame);
  if (lent != lentTo_.end() && (together.contains(lent->second) || loans_.at(lent->second).pins > 0))
    return false;
  const Page *resident = residentIn(frame);
  return !resident || *resident == page ||
         (find(resident->block)->mayLendFrames() && !together.contains(resident->block));
}

Status Loans::vacate(FrameId frame, const Page &page) {
  if (const auto lent = lentTo_.find(frame); lent != lentTo_.end())
    PUMPGRAPH_TRY(putAway(lent->second));
  const Page *resident = residentIn(frame);
  return !resident || *resident == page ? Status{} : displace(*resident);
}

Status Loans::displace(const Page &page) {
  const PlannedBlock &planned = *find(page.block);
  if (!planned.hasValue || planned.mirrored[page.page]) {
    displaced_.emplace(page, planned.hasValue ? pools_.at(planned.place[page.page]) : nullptr);
    return {};
  }
  PUMPGRAPH_TRY(openSaves());
  const Expected<char *> slot = takeSlot();
  if (!slot)
    return tl::unexpected<Error>(slot.error());
  PUMPGRAPH_TRY_WHILE(
      note(tools_.driver.memcpyDtoHAsync(*slot, addressOf(planned, page.page), planned.bytesOf(page.page), saves_)),
      "saving a page of block {}", page.block);
  displaced_.emplace(page, *slot);
  return {};
}

/// A displaced page that comes into its own frame is displaced no more.
Status Loans::copyIn(const PlannedBlock &planned, const Loan &loan) {
  for (std::uint64_t page = 0; page < loan.frames.size(); ++page) {
    if (const char *place = hostPlace(planned, page); place && loan.frames[page] != noFrame)
      PUMPGRAPH_TRY_WHILE(
          tools_.driver.memcpyHtoDAsync(addressOf(planned, page), place, planned.bytesOf(page), tools_.stream),
          "bringing a page of block {}", planned.block);
    if (loan.frames[page] == planned.frames[page])
      leave(planned, page);
  }
  return {};
}

Status Loans::remap(const PlannedBlock &planned, const Loan &loan, bool toLoan) const {
  std::vector<FrameId> own = planned.frames, lent = loan.frames;
  for (std::size_t page = 0; page < own.size(); ++page)
    if (lent[page] == noFrame || lent[page] == own[page])
      own[page] = lent[page] = noFrame;
  if (std::all_of(lent.begin(), lent.end(), [](FrameId frame) { return frame == noFrame; }))
    return {};
  const CUdeviceptr address = addressOf(planned, 0);
  PUMPGRAPH_TRY(tools_.mapper.unmapFrames(address, toLoan ? own : lent));
  return tools_.mapper.mapFrames(address, toLoan ? lent : own);
}

Status Loans::putAway(BlockId id) {
  const PlannedBlock &planned = *find(id);
  const auto found = loans_.find(id);
  const Loan loan = std::move(found->second);
  loans_.erase(found);
  releaseClaims(id);
  ++tools_.departures;
  if (loan.memory)
    return note(returnHostMemory(planned, loan));
  if (loan.isWritten)
    PUMPGRAPH_TRY(note(saveWritten(planned, loan)));
  return note(remap(planned, loan, false));
}

/// To where the value is when it is not at its address. Waits where the address is about to lead elsewhere.
Status Loans::saveWritten(const PlannedBlock &planned, const Loan &loan) {
  PUMPGRAPH_TRY(openSaves());
  bool isMappedAnew = false;
  for (std::uint64_t page = 0; page < loan.frames.size(); ++page) {
    if (loan.frames[page] == noFrame)
      continue;
    const bool isInOwnFrame = loan.frames[page] == planned.frames[page];
    isMappedAnew = isMappedAnew || !isInOwnFrame;
    char *place = planned.resident[page] && isInOwnFrame && planned.mirrored[page] ? pools_.at(planned.place[page])
                                                                                   : hostPlace(planned, page);
    if (place)
      PUMPGRAPH_TRY_WHILE(tools_.driver.memcpyDtoHAsync(place, addressOf(planned, page), planned.bytesOf(page), saves_),
                          "saving what was written to block {}", planned.block);
  }
  if (isMappedAnew)
    PUMPGRAPH_TRY_WHILE(tools_.driver.streamSynchronize(saves_), "saving what was written to block {}", planned.block);
  return {};
}

Status Loans::settle() {
  if (empty())
    return {};
  PUMPGRAPH_TRY(waitForDevice(tools_, "values go back to their places"));
  while (!loans_.empty())
    PUMPGRAPH_TRY(putAway(loans_.begin()->first));
  PUMPGRAPH_TRY(note(joinSaves()));
  for (const auto &[page, place] : displaced_)
    if (place)
      PUMPGRAPH_TRY_WHILE(note(tools_.driver.memcpyHtoDAsync(addressOf(*find(page.block), page.page), place,
                                                             find(page.block)->bytesOf(page.page), tools_.stream)),
                          "bringing back a page of block {}", page.block);
  PUMPGRAPH_TRY(note(waitForDevice(tools_, "a step is replayed")));
  while (!displaced_.empty())
    leave(*find(displaced_.begin()->first.block), displaced_.begin()->first.page);
  freeLeftSlots();
  return {};
}

Status Loans::lendInHostMemory(const PlannedBlock &planned) {
  const Block &block = tools_.heap.block(planned.block);
  const Expected<std::shared_ptr<HostBacking>> memory = HostBacking::create(tools_.host, block.bytes());
  if (!memory)
    return tl::unexpected<Error>(memory.error());
  Window window(tools_);
  PUMPGRAPH_TRY(window.open(block.pages, (*memory)->handle()));
  PUMPGRAPH_TRY(joinSaves());
  PUMPGRAPH_TRY(copyAll(planned, window.address(), block.address, true));
  PUMPGRAPH_TRY(waitForDevice(tools_, "memory is mapped anew"));
  PUMPGRAPH_TRY(window.close());
  PUMPGRAPH_TRY(note(unmapPlanned(tools_, planned)));
  PUMPGRAPH_TRY(note(tools_.mapper.mapHandle(block.address, block.bytes(), (*memory)->handle())));
  for (std::uint64_t page = 0; page < planned.frames.size(); ++page)
    if (planned.resident[page] && !displaced_.contains({planned.block, page}))
      lentTo_[planned.frames[page]] = planned.block; // it stays as it is
  loans_[planned.block].memory = *memory;
  return {};
}

Status Loans::returnHostMemory(const PlannedBlock &planned, const Loan &loan) {
  const Block &block = tools_.heap.block(planned.block);
  if (loan.isWritten) {
    std::vector<FrameId> frames = planned.residentFrames();
    for (std::uint64_t page = 0; page < frames.size(); ++page)
      if (displaced_.contains({planned.block, page}))
        frames[page] = noFrame;
    Window window(tools_);
    PUMPGRAPH_TRY(window.open(frames));
    PUMPGRAPH_TRY(copyAll(planned, block.address, window.address(), false));
    PUMPGRAPH_TRY(waitForDevice(tools_, "memory is mapped anew"));
    PUMPGRAPH_TRY(window.close());
  }
  PUMPGRAPH_TRY(tools_.mapper.unmapHandle(block.address, block.bytes()));
  return mapPlanned(tools_, planned);
}

Status Loans::copyAll(const PlannedBlock &planned, CUdeviceptr window, CUdeviceptr frames, bool toWindow) const {
  const Driver &driver = tools_.driver;
  for (std::uint64_t page = 0; page < planned.frames.size(); ++page) {
    const CUdeviceptr there = window + page * pageBytes, here = frames + page * pageBytes;
    const std::uint64_t bytes = planned.bytesOf(page);
    char *place = hostPlace(planned, page);
    Status done;
    if (planned.resident[page] && !displaced_.contains({planned.block, page})) {
      done = toWindow ? driver.memcpyDtoDAsync(there, here, bytes, tools_.stream)
                      : driver.memcpyDtoDAsync(here, there, bytes, tools_.stream);
      place = planned.mirrored[page] && !toWindow ? pools_.at(planned.place[page]) : nullptr;
    }
    if (done && place)
      done = toWindow ? driver.memcpyHtoDAsync(there, place, bytes, tools_.stream)
                      : driver.memcpyDtoHAsync(place, there, bytes, tools_.stream);
    PUMPGRAPH_TRY_WHILE(done, "moving a page of block {} {} host memory", planned.block, toWindow ? "to" : "from");
  }
  return ValueCopies(tools_, pools_).copyHosted(planned, window, !toWindow);
}

Status Loans::openSaves() {
  if (!saves_)
    PUMPGRAPH_TRY_WHILE(tools_.driver.streamCreate(&saves_, CU_STREAM_NON_BLOCKING), "saving values");
  if (!saved_)
    PUMPGRAPH_TRY_WHILE(tools_.driver.eventCreate(&saved_, CU_EVENT_DISABLE_TIMING), "saving values");
  return {};
}

Status Loans::joinSaves() {
  if (!saved_)
    return {};
  PUMPGRAPH_TRY_WHILE(tools_.driver.eventRecord(saved_, saves_), "saving values");
  PUMPGRAPH_TRY_WHILE(tools_.driver.streamWaitEvent(tools_.stream, saved_, 0), "saving values");
  return {};
}

Expected<char *> Loans::takeSlot() {
  if (freeSlots_.empty()) {
    Expected<std::unique_ptr<PinnedPool>> pool =
        PinnedPool::create(tools_.driver, tools_.host, pagesPerPool * pageBytes);
    if (!pool)
      return tl::unexpected<Error>(pool.error());
    for (std::uint64_t page = pagesPerPool; page > 0; --page)
      freeSlots_.push_back((*pool)->at((page - 1) * pageBytes));
    pinned_.push_back(std::move(*pool));
  }
  char *slot = freeSlots_.back();
  freeSlots_.pop_back();
  return slot;
}

void Loans::releaseMemory() {
  freeSlots_.clear();
  pinned_.clear();
}

void Loans::leave(const PlannedBlock &planned, std::uint64_t page) {
  const auto found = displaced_.find({planned.block, page});
  if (found == displaced_.end())
    return;
  if (found->second && !planned.mirrored[page])
    leftSlots_.push_back(found->second);
  displaced_.erase(found);
}

void Loans::freeLeftSlots() {
  freeSlots_.insert(freeSlots_.end(), leftSlots_.begin(), leftSlots_.end());
  leftSlots_.clear();
}

void Loans::releaseClaims(BlockId block) {
  std::erase_if(lentTo_, [&](const auto &lent) {
    if (lent.second != block)
      return false;
    if (!residentIn(lent.first))
      free_.insert(lent.first);
    return true;
  });
}

Status Loans::unmap(const PlannedBlock &planned) const {
  const auto found = loans_.find(planned.block);
  if (found == loans_.end())
    return unmapPlanned(tools_, planned);
  if (found->second.memory)
    return tools_.mapper.unmapHandle(addressOf(planned, 0), tools_.heap.block(planned.block).bytes());
  PlannedBlock lent = planned;
  for (std::uint64_t page = 0; page < lent.frames.size(); ++page)
    if (found->second.frames[page] != noFrame)
      lent.frames[page] = found->second.frames[page];
  return unmapPlanned(tools_, lent);
}

void Loans::abandon() {
  loans_.clear();
  lentTo_.clear();
  displaced_.clear();
}

} // namespace pumpgraph::runtime
