// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/StreamRun.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace pumpgraph::runtime {
namespace {

constexpr std::size_t mostPlans = 8;
constexpr std::size_t mostRetired = 8;
constexpr std::size_t mostUnplannedShown = 3;
constexpr std::uint32_t mostGivenUp = 4; // plans of a period

std::uint64_t wordOf(CUstream stream) {
  return reinterpret_cast<std::uintptr_t>(stream);
}

} // namespace

StreamRun::StreamRun(const MemoryTools &tools, NamedBlocks::Beside beside, std::chrono::milliseconds patience, Say say)
    : tools_(tools), named_(tools, std::move(beside)), deviceWait_(tools.driver), patience_(patience),
      say_(std::move(say)) {}

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

/// A kernel beside the rounds may wait for the program, which waits for the caller.
bool StreamRun::waitForDevice() {
  const Expected<bool> idle = deviceWait_.isIdleWithin(patience_);
  if (idle && *idle)
    return true;
  const std::chrono::duration<double> waited = patience_;
  static_cast<void>(
      refuse(idle ? fmt::format("the device was still busy after {:g} s: a kernel may wait for the program",
                                waited.count())
                  : idle.error().message)); // none is in force
  return false;
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

Expected<std::unique_ptr<StreamPlan>> StreamRun::makePlan(RoundScript script, const Compiler &compiler) {
  if (!script.unplannable.empty())
    return fail(PUMPGRAPH_UNPLANNABLE, "{}", script.unplannable);
  if (const auto given = givenUp_.find(script.period); given != givenUp_.end() && given->second >= mostGivenUp)
    return fail(PUMPGRAPH_UNPLANNABLE, "other memory gets addresses of its memory again and again");
  PUMPGRAPH_TRY(prepareDriver(0));
  PUMPGRAPH_TRY(named_.searchAll(down_));
  MemoryTools tools = tools_;
  tools.stream = down_;
  Expected<std::unique_ptr<StreamPlan>> plan = planRound(tools, compiler, std::move(script), named_.addresses());
  if (plan && *plan)
    PUMPGRAPH_TRY(prepareDriver((*plan)->list.events));
  return plan;
}

void StreamRun::plan(RoundScript script, const Compiler &compiler) {
  const std::uint32_t period = script.period;
  if (isRefused() || isBroken_ || plans_.contains(period) || !takeBack("another period is planned") || !waitForDevice())
    return;
  const std::size_t calls = script.events.size();
  Expected<std::unique_ptr<StreamPlan>> plan = makePlan(std::move(script), compiler);
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
    if (!plan.lowered.buffers[buffer].liveIn && tools_.heap.block(id).hasLiveMember())
      return name + " is in use";
  }
  return "";
}

std::string StreamRun::nameOfNamed(const StreamPlan &plan) const {
  for (BufferIndex buffer = 0; buffer < plan.blocks.size(); ++buffer)
    if (named_.contains(plan.blocks[buffer]))
      return plan.lowered.buffers[buffer].name;
  return "";
}

void StreamRun::giveUp(Plans::iterator plan) {
  ++givenUp_[plan->first];
  hasGivenUp_ = true;
  retire(plan);
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
  if (!waitForDevice())
    return;
  if (const Status searched = named_.searchWritten(down_); !searched) {
    say_(Level::Debug,
         fmt::format("the plan of period {} does not come into force: {}", period, searched.error().message));
    return;
  }
  if (const std::string name = nameOfNamed(plan); !name.empty()) {
    say_(Level::Debug,
         fmt::format("the plan of period {} is given up: {} has its address in other memory", period, name));
    return giveUp(known);
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

Status StreamRun::noteUpload(const Call &call) {
  return named_.noteUpload(call)
             ? Status{}
             : refuse(fmt::format("{} uploads memory that cannot be searched for addresses", call.name));
}

Status StreamRun::note(const Call &call) {
  if (!plans_.empty())
    named_.noteWrites(call);
  return call.uploaded && !isRefused() ? noteUpload(call) : Status{};
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
  if (!plan_) {
    if (!plans_.empty())
      named_.noteWrites(call);
    return {};
  }
  if (call.uploaded && !nameOfNamed(*plan_).empty()) {
    const Plans::iterator plan = plans_.find(plan_->script.period);
    PUMPGRAPH_TRY(deviate(fmt::format("{}, which uploads addresses of memory that moves", call.name)));
    named_.noteWrites(call);
    giveUp(plan);
    return {};
  }
  const RoundEvent *const event = expected(RoundEvent::Kind::Call);
  if (!event || event->parts != call.parts || !call.unplannable.empty()) {
    named_.noteWrites(call);
    return deviate(call.name);
  }
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
