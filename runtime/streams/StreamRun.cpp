// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/StreamRun.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace pumpgraph::runtime {
namespace {

constexpr std::size_t mostPlans = 8;
constexpr std::size_t mostRetired = 8;
constexpr std::size_t mostUnplannedShown = 3;
constexpr std::size_t wordsAtOnce = 1 << 12; // of an upload
constexpr std::uint64_t stagingBytes = std::uint64_t{4} << 20;

std::uint64_t wordOf(CUstream stream) {
  return reinterpret_cast<std::uintptr_t>(stream);
}

enum class Readable : std::uint8_t { No, Yes, Unknown };

/// Memory that a call copies from may be the device's. The system does not read pinned memory for others, and where it
/// reads none at all nobody knows.
Readable isReadable(const Driver &driver, std::uint64_t address) {
  unsigned type = 0;
  if (driver.pointerGetAttribute.raw(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS)
    return type == CU_MEMORYTYPE_HOST ? Readable::Yes : Readable::No;
  char byte;
  iovec local{&byte, 1}, remote{reinterpret_cast<void *>(address), 1};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1)
    return Readable::Yes;
  return errno == EFAULT ? Readable::No : Readable::Unknown;
}

/// Without a branch for each word, at the speed of memory.
bool mayHoldAddresses(std::span<const std::uint64_t> words, const AddressSpace &addresses) {
  bool found = false;
  for (const std::uint64_t word : words)
    found |= addresses.contains(word);
  return found;
}

} // namespace

StreamRun::StreamRun(const MemoryTools &tools, std::string compiler, Say say)
    : tools_(tools), compilerPath_(std::move(compiler)), say_(std::move(say)) {}

StreamRun::~StreamRun() {
  if (plan_)
    plan_->residence->abandon();
  for (const CUevent event : events_)
    tools_.driver.eventDestroy.raw(event);
  for (const CUstream stream : {down_, up_})
    if (stream)
      tools_.driver.streamDestroy.raw(stream);
}

// ---- planning -------------------------------------------------------------------------------------------------------

Expected<std::set<std::uint64_t>> StreamRun::findStaying() {
  const Heap &heap = tools_.heap;
  PUMPGRAPH_TRY_WHILE(tools_.driver.ctxSynchronize(), "waiting before memory is searched for addresses");
  const Expected<std::unique_ptr<PinnedPool>> staging = PinnedPool::create(tools_.driver, tools_.host, stagingBytes);
  if (!staging)
    return tl::unexpected<Error>(staging.error());
  std::set<BlockId> staying = named_;
  // Freed memory too: a table of addresses, and what it names, may live for a part of each round.
  for (const BlockId id : heap.blocks()) {
    const Block &block = heap.block(id);
    if (block.backing != Backing::Device && block.backing != Backing::Host)
      continue;
    for (std::uint64_t done = 0; done < block.bytes(); done += stagingBytes) {
      const std::uint64_t bytes = std::min(stagingBytes, block.bytes() - done);
      char *const words = (*staging)->at(0);
      PUMPGRAPH_TRY_WHILE(tools_.driver.memcpyDtoHAsync(words, block.address + done, bytes, down_),
                          "looking for addresses in memory");
      PUMPGRAPH_TRY_WHILE(tools_.driver.streamSynchronize(down_), "looking for addresses in memory");
      addNamed({reinterpret_cast<const std::uint64_t *>(words), bytes / sizeof(std::uint64_t)}, id, staying);
    }
  }
  std::set<std::uint64_t> addresses;
  for (const BlockId id : staying)
    if (heap.exists(id))
      addresses.insert(heap.block(id).address);
  return addresses;
}

void StreamRun::addNamed(std::span<const std::uint64_t> words, std::optional<BlockId> holder,
                         std::set<BlockId> &named) const {
  if (!mayHoldAddresses(words, tools_.addresses))
    return;
  for (const std::uint64_t word : words)
    if (const std::optional<BlockId> block = tools_.heap.blockAround(word); block && block != holder)
      named.insert(*block);
}

Status StreamRun::prepareDriver(std::uint32_t events) {
  if (!context_)
    PUMPGRAPH_TRY(tools_.driver.ctxGetCurrent(&context_));
  for (CUstream *stream : {&down_, &up_})
    if (!*stream)
      PUMPGRAPH_TRY(tools_.driver.streamCreate(stream, CU_STREAM_NON_BLOCKING));
  while (events_.size() < events) {
    CUevent event = nullptr;
    PUMPGRAPH_TRY(tools_.driver.eventCreate(&event, CU_EVENT_DISABLE_TIMING));
    events_.push_back(event);
  }
  return {};
}

Expected<std::unique_ptr<StreamPlan>> StreamRun::makePlan(RoundScript script) {
  if (!script.unplannable.empty())
    return fail(PUMPGRAPH_UNPLANNABLE, "{}", script.unplannable);
  if (!compiler_) {
    const Expected<Compiler> opened = Compiler::open(compilerPath_);
    if (!opened)
      return tl::unexpected<Error>(opened.error());
    compiler_ = *opened;
  }
  PUMPGRAPH_TRY(prepareDriver(0));
  const Expected<std::set<std::uint64_t>> staying = findStaying();
  if (!staying)
    return tl::unexpected<Error>(staying.error());
  MemoryTools tools = tools_;
  tools.stream = down_;
  Expected<std::unique_ptr<StreamPlan>> plan = planRound(tools, *compiler_, std::move(script), *staying);
  if (plan && *plan)
    PUMPGRAPH_TRY(prepareDriver((*plan)->list.events));
  return plan;
}

void StreamRun::plan(RoundScript script) {
  const std::uint32_t period = script.period;
  if (isRefused() || isBroken_ || plans_.contains(period) || !takeBack("another period is planned"))
    return;
  const std::size_t calls = script.events.size();
  Expected<std::unique_ptr<StreamPlan>> plan = makePlan(std::move(script));
  if (!plan || !*plan) {
    unplanned_[period] = plan ? "all of it is on the device" : plan.error().message;
    const bool isNews = !plan && unplanned_.size() <= mostUnplannedShown;
    say_(isNews ? Level::Info : Level::Debug, fmt::format("period {} is not planned: {}", period, unplanned_[period]));
    return;
  }
  if (plans_.size() == mostPlans)
    retire(plans_.begin());
  say_(Level::Info, fmt::format("period {}, {} calls and allocations, is planned; predicted {:.1f} ms a round", period,
                                calls, (*plan)->predictedUs * 1e-3));
  plans_[period] = std::move(*plan);
}

Status StreamRun::refuse(const std::string &reason) {
  if (refusal_.empty()) {
    refusal_ = reason;
    say_(Level::Info, "nothing is planned from now on: " + reason);
  }
  return takeBack(reason);
}

Status StreamRun::forgetAll(const std::string &reason) {
  PUMPGRAPH_TRY(takeBack(reason));
  while (!plans_.empty())
    retire(plans_.begin());
  return {};
}

void StreamRun::retire(Plans::iterator plan) {
  plan->second->residence.reset();
  if (plan->second->inForce != 0 && retired_.size() < mostRetired)
    retired_.push_back(std::move(plan->second));
  plans_.erase(plan);
}

Expected<bool> StreamRun::forgetStream(std::uint64_t stream) {
  const auto uses = [&](const auto &plan) {
    const std::vector<RoundEvent> &events = plan.second->script.events;
    return std::any_of(events.begin(), events.end(), [&](const RoundEvent &event) {
      return event.kind == RoundEvent::Kind::Call && event.streamId == stream;
    });
  };
  if (std::none_of(plans_.begin(), plans_.end(), uses))
    return false;
  PUMPGRAPH_TRY(takeBack("a stream is destroyed"));
  for (auto plan = plans_.begin(); plan != plans_.end();)
    if (uses(*plan))
      retire(plan++);
    else
      ++plan;
  return true;
}

// ---- into force -----------------------------------------------------------------------------------------------------

std::string StreamRun::whyNotNow(const StreamPlan &plan) const {
  for (BufferIndex buffer = 0; buffer < plan.blocks.size(); ++buffer) {
    const BlockId id = plan.blocks[buffer];
    const std::string &name = plan.lowered.buffers[buffer].name;
    if (!tools_.heap.exists(id) || tools_.heap.block(id).address != plan.addresses[buffer])
      return name + " is gone";
    if (named_.contains(id))
      return name + " has its address in other memory";
    if (!plan.lowered.buffers[buffer].liveIn && tools_.heap.block(id).hasLiveMember())
      return name + " is in use";
  }
  return "";
}

/// That does not fit on the device then: blocks that find no room as a whole are in host memory.
std::uint64_t StreamRun::reserveFor(const StreamPlan &plan) const {
  std::uint64_t bytes = 0, largest = 0;
  for (const Buffer &buffer : plan.lowered.buffers) {
    bytes += buffer.size;
    largest = std::max(largest, buffer.size);
  }
  const std::uint64_t room = plan.residence->framesWanted() * pageBytes;
  return bytes - std::min(bytes, room - std::min(room, largest));
}

Status StreamRun::checkHostRoom(const StreamPlan &plan) const {
  std::uint64_t own = 0;
  for (const BlockId id : plan.blocks)
    own += tools_.heap.block(id).backing == Backing::Host ? tools_.heap.block(id).bytes() : 0;
  const std::uint64_t need = reserveFor(plan);
  return need <= own ? Status{} : tools_.host.checkRoom(need - own, "taking the plan back");
}

Status StreamRun::install(StreamPlan &plan) {
  Residence &residence = *plan.residence;
  std::uint64_t frames = tools_.frames.available();
  for (const BlockId id : plan.blocks)
    frames += tools_.heap.block(id).frames.size();
  if (frames < residence.framesWanted())
    PUMPGRAPH_TRY(tools_.heap.flushCache());
  PUMPGRAPH_TRY(residence.pin());
  PUMPGRAPH_TRY(checkHostRoom(plan));
  tools_.host.keepReleased(true); // for the way back: new host memory is slow to get
  PUMPGRAPH_TRY(residence.install());
  reserved_ = reserveFor(plan);
  tools_.host.countPinned(static_cast<std::int64_t>(reserved_));
  return {};
}

void StreamRun::beginRound(std::uint32_t period, std::uint64_t phase) {
  const auto known = plans_.find(period);
  if (plan_ || isRefused() || isBroken_ || known == plans_.end() || known->second->script.phase != phase)
    return;
  StreamPlan &plan = *known->second;
  if (plan.isLeftTooOften())
    return;
  if (const std::string reason = whyNotNow(plan); !reason.empty()) {
    say_(Level::Debug, fmt::format("the plan of period {} does not come into force: {}", period, reason));
    return;
  }
  if (const Status installed = install(plan); !installed) {
    isBroken_ = plan.residence->lost() && tools_.driver.loss->result() == CUDA_SUCCESS;
    say_(Level::Info,
         fmt::format("the plan of period {} cannot come into force: {}", period, installed.error().message));
    retire(known);
    return;
  }
  plan_ = &plan;
  position_ = node_ = issued_ = 0;
  isLeaving_ = false;
  ++plan.inForce;
}

// ---- events ---------------------------------------------------------------------------------------------------------

const RoundEvent *StreamRun::expected(RoundEvent::Kind kind) const {
  if (isLeaving_)
    return nullptr;
  const RoundEvent &event = plan_->script.events[position_];
  return event.kind == kind ? &event : nullptr;
}

/// Adds blocks whose addresses are among the bytes that a call uploads. Words begin where they will be aligned.
Status StreamRun::noteUpload(const Call &call) {
  const std::uint64_t skipped = roundUp(call.uploadedTo, sizeof(std::uint64_t)) - call.uploadedTo;
  std::uint64_t at = reinterpret_cast<std::uintptr_t>(call.uploaded) + skipped;
  const std::uint64_t end = reinterpret_cast<std::uintptr_t>(call.uploaded) + call.uploadedBytes;
  if (at + sizeof(std::uint64_t) > end)
    return {};
  for (const std::uint64_t address : {at, end - 1}) {
    const Readable readable = isReadable(tools_.driver, address);
    if (readable == Readable::Unknown)
      return refuse(fmt::format("{} uploads memory that cannot be searched for addresses", call.name));
    if (readable == Readable::No) // the device's
      return {};
  }
  std::array<std::uint64_t, wordsAtOnce> words;
  while (at + sizeof(std::uint64_t) <= end) {
    const std::size_t count = std::min<std::size_t>(words.size(), (end - at) / sizeof(std::uint64_t));
    std::memcpy(words.data(), reinterpret_cast<const void *>(at), count * sizeof(std::uint64_t));
    addNamed(std::span(words).first(count), std::nullopt, named_);
    at += count * sizeof(std::uint64_t);
  }
  return {};
}

Status StreamRun::issueOne(const IssuedOperation &operation, CUstream stream) {
  const CUstream on = operation.lane == IssueLane::Call ? stream : operation.lane == IssueLane::Down ? down_ : up_;
  const Driver &driver = tools_.driver;
  if (operation.kind == IssuedOperation::Kind::Record)
    return driver.eventRecord(events_[operation.event], on);
  if (operation.kind == IssuedOperation::Kind::Wait)
    return driver.streamWaitEvent(on, events_[operation.event], 0);
  const Node &copy = plan_->lowered.nodes[operation.copy];
  const CUdeviceptr address = plan_->addresses[copy.buffer] + copy.range.offset;
  char *const place = plan_->residence->pool().at(copy.hostOffset);
  return copy.kind == NodeKind::CopyToHost ? driver.memcpyDtoHAsync(place, address, copy.range.size, on)
                                           : driver.memcpyHtoDAsync(address, place, copy.range.size, on);
}

Status StreamRun::issueBefore(CUstream stream) {
  const std::vector<IssuedOperation> &operations = plan_->list.before[node_];
  for (; issued_ < operations.size(); ++issued_)
    if (const Status issued = issueOne(operations[issued_], stream); !issued) {
      isLeaving_ = true; // unless the plan is taken back
      return takeBack(issued.error().message);
    }
  return {};
}

Status StreamRun::beforeCall(const Call &call) {
  if (isBroken_)
    return fail(PUMPGRAPH_INTERNAL, "values were lost");
  if (call.uploaded && !isRefused())
    PUMPGRAPH_TRY(noteUpload(call));
  if (!plan_)
    return {};
  if (call.uploaded)
    for (const BlockId id : plan_->blocks)
      if (named_.contains(id))
        return deviate(fmt::format("{}, which uploads addresses of memory that moves", call.name));
  const RoundEvent *const event = expected(RoundEvent::Kind::Call);
  if (!event || event->parts != call.parts || !call.unplannable.empty())
    return deviate(call.name);
  return event->isNode ? issueBefore(call.stream.forDriver()) : Status{};
}

Status StreamRun::afterCall(const Call &call, CUresult result) {
  if (!plan_)
    return {};
  if (result != CUDA_SUCCESS)
    return deviate(fmt::format("{}, which failed", call.name));
  ++plannedCalls_;
  if (plan_->script.events[position_].isNode) {
    const std::vector<IssuedOperation> &operations = plan_->list.after[node_++];
    issued_ = 0;
    for (const IssuedOperation &operation : operations)
      if (const Status issued = issueOne(operation, call.stream.forDriver()); !issued) {
        ++position_;
        isLeaving_ = true;
        return takeBack(issued.error().message);
      }
  }
  return advance();
}

Status StreamRun::beforeAllocation(std::uint64_t bytes, CUstream stream) {
  if (isBroken_)
    return fail(PUMPGRAPH_INTERNAL, "values were lost");
  if (!plan_)
    return {};
  const RoundEvent *const event = expected(RoundEvent::Kind::Allocate);
  return event && event->parts[0] == bytes && event->parts[1] == wordOf(stream) ? Status{} : deviate("an allocation");
}

Status StreamRun::afterAllocation(std::optional<CUdeviceptr> address) {
  if (!plan_)
    return {};
  if (!address || plan_->script.events[position_].parts[2] != *address)
    return deviate("an allocation at another address");
  return advance();
}

Status StreamRun::beforeFree(CUdeviceptr address, CUstream stream) {
  if (!plan_)
    return {};
  const RoundEvent *const event = expected(RoundEvent::Kind::Free);
  if (!event || event->parts[0] != wordOf(stream) || event->parts[1] != address)
    return deviate("a free");
  return advance();
}

Status StreamRun::advance() {
  if (++position_ != plan_->script.events.size())
    return {};
  const ContextScope context(tools_.driver, context_); // memory is freed without one, too
  PUMPGRAPH_TRY(issueBefore(nullptr));
  if (!plan_)
    return {};
  ++plan_->rounds;
  position_ = node_ = issued_ = 0;
  return {};
}

// ---- out of force ---------------------------------------------------------------------------------------------------

Status StreamRun::deviate(std::string_view event) {
  ++plan_->takenBack;
  plan_->lastDeviation = event;
  ++plan_->deviations[plan_->lastDeviation];
  return takeBack(fmt::format("{} came instead of event {} of {}", event, position_, plan_->script.events.size()));
}

Status StreamRun::remove() {
  CutStates states(plan_->lowered, plan_->list);
  for (std::size_t event = 0; event < position_; ++event)
    states.pass(plan_->script.events[event]);
  states.issueCopies(node_, issued_);
  std::map<BlockId, Residence::Midway> midway;
  for (BufferIndex buffer = 0; buffer < plan_->blocks.size(); ++buffer) {
    Residence::Midway &now = midway[plan_->blocks[buffer]];
    for (const PageState &page : states.pages(buffer)) {
      now.onDevice.push_back(page.hasValue && page.onDevice);
      now.hasValue |= page.hasValue;
    }
  }
  return plan_->residence->removeMidway(midway);
}

Status StreamRun::takeBack(const std::string &reason) {
  if (isBroken_)
    return fail(PUMPGRAPH_INTERNAL, "values were lost");
  if (!plan_)
    return {};
  const ContextScope scope(tools_.driver, context_);
  tools_.host.countPinned(-static_cast<std::int64_t>(reserved_));
  Status removed = remove();
  if (!removed && !plan_->residence->lost() && tools_.driver.loss->result() == CUDA_SUCCESS) {
    tools_.host.countPinned(static_cast<std::int64_t>(reserved_)); // it is in force as before
    say_(Level::Info, fmt::format("the plan of period {} cannot be taken back ({}): {}", plan_->script.period, reason,
                                  removed.error().message));
    return removed;
  }
  // Without a context there is nothing to save: the driver tells the program.
  isBroken_ = !removed && tools_.driver.loss->result() == CUDA_SUCCESS;
  say_(isBroken_ ? Level::Info : Level::Debug,
       fmt::format("the plan of period {} is taken back: {}{}", plan_->script.period, reason,
                   removed ? "" : ", but " + removed.error().message));
  plan_ = nullptr;
  return isBroken_ ? removed : Status{};
}

void StreamRun::abandon() {
  if (plan_) {
    plan_->residence->abandon();
    tools_.host.countPinned(-static_cast<std::int64_t>(reserved_));
  }
  plan_ = nullptr;
  while (!plans_.empty())
    retire(plans_.begin());
  events_.clear();
  down_ = up_ = nullptr;
  context_ = nullptr;
}

std::vector<const StreamPlan *> StreamRun::history() const {
  std::vector<const StreamPlan *> all;
  for (const std::unique_ptr<StreamPlan> &plan : retired_)
    all.push_back(plan.get());
  for (const auto &[period, plan] : plans_)
    all.push_back(plan.get());
  return all;
}

Status StreamRun::writeReport(const std::string &folder) const {
  std::map<std::uint32_t, int> pages;
  for (const StreamPlan *plan : history()) {
    const std::uint32_t period = plan->script.period;
    const int page = ++pages[period];
    const std::string path =
        fmt::format("{}/{}-period-{}{}.txt", folder, getpid(), period, page == 1 ? "" : fmt::format("-{}", page));
    std::ofstream file(path);
    file << fmt::format("period {}: {} calls and allocations, {} rounds as planned, in force {} times\n", period,
                        plan->script.events.size(), plan->rounds, plan->inForce);
    for (const auto &[event, count] : plan->deviations)
      file << fmt::format("left {} times by {}\n", count, event);
    file << "\n" << plan->reportText;
    file.close();
    if (!file)
      return fail(PUMPGRAPH_INVALID_ARGUMENT, "the report {} cannot be written: {}", path, std::strerror(errno));
  }
  return {};
}

std::vector<std::string> StreamRun::summary() const {
  std::vector<std::string> lines;
  for (const StreamPlan *plan : history()) {
    std::string &line = lines.emplace_back(fmt::format("planned: {} rounds of period {}, in force {} times",
                                                       plan->rounds, plan->script.period, plan->inForce));
    if (plan->takenBack != 0)
      line += fmt::format(", left {} times, the last time by {}", plan->takenBack, plan->lastDeviation);
  }
  std::size_t shown = 0;
  for (const auto &[period, reason] : unplanned_)
    if (shown++ < mostUnplannedShown)
      lines.push_back(fmt::format("period {} is not planned: {}", period, reason));
  if (shown > mostUnplannedShown)
    lines.push_back(fmt::format("{} more periods are not planned", shown - mostUnplannedShown));
  if (isRefused())
    lines.push_back("nothing was planned since: " + refusal_);
  return lines;
}

} // namespace pumpgraph::runtime
