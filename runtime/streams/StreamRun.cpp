// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/StreamRun.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pumpgraph::runtime {
namespace {

constexpr std::size_t mostPlans = 8;
constexpr std::size_t mostRetired = 8;
constexpr std::uint32_t mostGivenUp = 4; // plans of a period
constexpr std::uint64_t roundsBeforeTiming = 2;
constexpr double leastNews = 0.05; // of a prediction, for another plan
constexpr double leastGain = 0.02; // that is worth the change

std::uint64_t wordOf(CUstream stream) {
  return reinterpret_cast<std::uintptr_t>(stream);
}

} // namespace

StreamRun::StreamRun(const MemoryTools &tools, NamedBlocks::Beside beside, const Options &options, Say say)
    : tools_(tools), named_(tools, std::move(beside)), deviceWait_(tools.driver), clocks_(tools.driver),
      plannedClocks_(tools.driver), patience_(options.patience), link_(options.link), say_(std::move(say)),
      unplannedSince_(tools.driver.now()) {}

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

std::set<std::uint64_t> StreamRun::blocksOnDevice() const {
  std::set<std::uint64_t> addresses;
  for (const BlockId id : tools_.heap.blocks())
    if (tools_.heap.block(id).backing == Backing::Device)
      addresses.insert(tools_.heap.block(id).address);
  return addresses;
}

Expected<std::unique_ptr<StreamPlan>> StreamRun::makePlan(RoundScript script, const Compiler &compiler) {
  if (!script.unplannable.empty())
    return fail(PUMPGRAPH_UNPLANNABLE, "{}", script.unplannable);
  if (const auto given = givenUp_.find(script.period); given != givenUp_.end() && given->second >= mostGivenUp)
    return fail(PUMPGRAPH_UNPLANNABLE, "other memory gets addresses of its memory again and again");
  PUMPGRAPH_TRY(prepareDriver(0));
  PUMPGRAPH_TRY(named_.searchAll(down_));
  if (const std::string reason = named_.whyAllStay(); !reason.empty())
    return fail(PUMPGRAPH_UNPLANNABLE, "{}", reason);
  if (!link_)
    measureLink();
  const std::set<std::uint64_t> there = blocksOnDevice();
  clocks_.read(script.description, script.clocks, [&](NodeIndex node) {
    const std::vector<Access> &accesses = script.description.nodes[node].accesses;
    return std::all_of(accesses.begin(), accesses.end(), [&](const Access &access) {
      const Buffer &buffer = script.description.buffers[access.buffer];
      return !buffer.isPrivate || there.contains(buffer.address);
    });
  });
  MemoryTools tools = tools_;
  tools.stream = down_;
  Expected<std::unique_ptr<StreamPlan>> plan =
      planRound(tools, compiler, std::move(script), named_.addresses(), *link_);
  if (plan && *plan)
    PUMPGRAPH_TRY(prepareDriver((*plan)->list.events));
  return plan;
}

/// On the largest block that is on the device, which keeps its value.
void StreamRun::measureLink() {
  link_.emplace();
  const Block *largest = nullptr;
  for (const BlockId id : tools_.heap.blocks()) {
    const Block &block = tools_.heap.block(id);
    if (block.backing == Backing::Device && (!largest || block.pages > largest->pages))
      largest = &block;
  }
  if (!largest)
    return;
  MemoryTools tools = tools_;
  tools.stream = down_;
  const Expected<LinkSpeed> measured = measureLinkOn(tools, largest->address, largest->bytes());
  if (!measured)
    return say_(Level::Debug, measured.error().message);
  link_ = *measured;
  say_(Level::Debug, fmt::format("the link moves {:.1f} GB/s up, {:.1f} down and {:.1f} in both directions",
                                 measured->up / 1e9, measured->down / 1e9, measured->both / 1e9));
}

void StreamRun::noteForce(bool isInForce) {
  const Driver::Clock::time_point now = tools_.driver.now();
  if (isInForce)
    unplannedTime_ += now - unplannedSince_;
  unplannedSince_ = now;
}

void StreamRun::plan(RoundScript script, const Compiler &compiler) {
  const std::uint32_t period = script.period;
  if (isRefused() || isBroken_ || plans_.contains(period) || !takeBack("another period is planned") || !waitForDevice())
    return;
  const std::size_t calls = script.events.size();
  const Driver::Clock::time_point start = tools_.driver.now();
  Expected<std::unique_ptr<StreamPlan>> plan = makePlan(std::move(script), compiler);
  planning_ += tools_.driver.now() - start;
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

void StreamRun::timeNext() {
  StreamPlan &plan = *plan_;
  if (plan.timing == StreamPlan::Timing::Running)
    plan.timing = StreamPlan::Timing::Past;
  else if (plan.timing == StreamPlan::Timing::Ahead && plan.rounds >= roundsBeforeTiming) {
    plan.timing = StreamPlan::Timing::Running;
    plannedClocks_.restart();
  }
}

void StreamRun::planAgain(const Compiler &compiler) {
  if (!plan_ || position_ != 0 || plan_->timing != StreamPlan::Timing::Past || !plannedClocks_.arePast(plan_->clocks))
    return;
  StreamPlan &old = *plan_;
  old.timing = StreamPlan::Timing::Over;
  RoundScript script = old.script;
  script.clocks.clear();
  plannedClocks_.read(script.description, old.clocks, [&](NodeIndex node) {
    const std::vector<Access> &accesses = old.lowered.nodes[old.list.calls[node]].accesses;
    return std::none_of(accesses.begin(), accesses.end(), [&](const Access &access) {
      return overlaps(old.lowered.buffers[access.buffer].hosted, access.range);
    });
  });
  const double timedUs = predictWith(compiler, old, script.description, *link_);
  const double wasUs = std::exchange(old.predictedUs, timedUs);
  say_(Level::Debug, fmt::format("with its calls' times, period {} is predicted to take {:.1f} ms a round, not {:.1f}",
                                 script.period, timedUs * 1e-3, wasUs * 1e-3));
  if (std::abs(timedUs - wasUs) < leastNews * wasUs || !takeBack("it is planned again") || !waitForDevice())
    return;
  const Driver::Clock::time_point start = tools_.driver.now();
  Expected<std::unique_ptr<StreamPlan>> plan = makePlan(std::move(script), compiler);
  planning_ += tools_.driver.now() - start;
  if (!plan || !*plan || (*plan)->predictedUs > (1 - leastGain) * timedUs)
    return;
  say_(Level::Info, fmt::format("period {} is planned again with its calls' times; predicted {:.1f} ms a round",
                                old.script.period, (*plan)->predictedUs * 1e-3));
  (*plan)->continueReportOf(old);
  plans_[old.script.period] = std::move(*plan);
}

Status StreamRun::refuse(const std::string &reason) {
  refuseLater(reason);
  return takeBack(reason); // or ahead of the next event
}

void StreamRun::refuseLater(const std::string &reason) {
  if (!refusal_.empty())
    return;
  refusal_ = leaveFor_ = reason;
  say_(Level::Info, "nothing is planned from now on: " + reason);
}

void StreamRun::noteHostMemory() {
  named_.noteAllUnsearched();
  if (plan_ && leaveFor_.empty())
    leaveFor_ = "host memory comes that kernels reach";
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

std::string StreamRun::whyItStays(const StreamPlan &plan) const {
  if (std::string reason = named_.whyAllStay(); !reason.empty())
    return reason;
  for (BufferIndex buffer = 0; buffer < plan.blocks.size(); ++buffer)
    if (named_.contains(plan.blocks[buffer]))
      return plan.lowered.buffers[buffer].name + " has its address in other memory";
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

bool StreamRun::mayBeginRound(std::uint32_t period, std::uint64_t phase) const {
  if (plan_)
    return position_ == 0;
  const auto known = plans_.find(period);
  return !isRefused() && !isBroken_ && known != plans_.end() && known->second->script.phase == phase;
}

void StreamRun::beginRound(std::uint32_t period, std::uint64_t phase) {
  if (plan_ || !mayBeginRound(period, phase))
    return;
  const auto known = plans_.find(period);
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
  if (const std::string reason = whyItStays(plan); !reason.empty()) {
    say_(Level::Debug, fmt::format("the plan of period {} is given up: {}", period, reason));
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
  leaveFor_.clear();
  noteForce(true);
  if (plan.timing == StreamPlan::Timing::Running) { // it was left in that round
    plan.timing = StreamPlan::Timing::Ahead;
    plan.clocks.clear();
  }
  plan.times.begin(unplannedSince_);
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
  const std::string_view reason = named_.noteUpload(call);
  return reason.empty() ? Status{} : refuse(fmt::format("{} {}", call.name, reason));
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
  PUMPGRAPH_TRY(leaveIfDue());
  if (call.uploaded && !isRefused())
    PUMPGRAPH_TRY(noteUpload(call));
  if (!plan_) {
    if (!plans_.empty())
      named_.noteWrites(call);
    return {};
  }
  if (call.uploaded && !whyItStays(*plan_).empty()) {
    const Plans::iterator plan = plans_.find(plan_->script.period);
    PUMPGRAPH_TRY(deviate(fmt::format("{}, which uploads addresses of memory that moves", call.name)));
    named_.noteWrites(call);
    giveUp(plan);
    return {};
  }
  const RoundEvent *const event = expected(RoundEvent::Kind::Call);
  if (!event || event->parts != call.parts || !call.unplannable.empty()) {
    named_.noteWrites(call);
    return deviate(call.unplannable.empty() ? call.name : fmt::format("{} ({})", call.name, call.unplannable));
  }
  if (!event->isNode)
    return {};
  PUMPGRAPH_TRY(issueBefore(call.stream.forDriver()));
  if (plan_ && plan_->timing == StreamPlan::Timing::Running)
    plannedClocks_.begin(plan_->clocks.emplace_back(plannedClocks_.take()), call.stream.forDriver());
  return {};
}

Status StreamRun::afterCall(const Call &call, CUresult result) {
  if (!plan_)
    return {};
  if (result != CUDA_SUCCESS)
    return deviate(fmt::format("{}, which failed", call.name));
  ++plannedCalls_;
  if (plan_->script.events[position_].isNode) {
    if (plan_->timing == StreamPlan::Timing::Running)
      plannedClocks_.end(plan_->clocks.back(), call.stream.forDriver());
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
  PUMPGRAPH_TRY(leaveIfDue());
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
  PUMPGRAPH_TRY(leaveIfDue());
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
  plan_->times.pass(tools_.driver.now());
  timeNext();
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

Status StreamRun::leave(const std::string &event) {
  if (plan_)
    ++plan_->leftAside;
  return takeBack(event);
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
  noteForce(false);
  return isBroken_ ? removed : Status{};
}

void StreamRun::abandon() {
  if (plan_) {
    plan_->residence->abandon();
    tools_.host.countPinned(-static_cast<std::int64_t>(reserved_));
    noteForce(false);
  }
  plan_ = nullptr;
  while (!plans_.empty())
    retire(plans_.begin());
  events_.clear();
  for (CallClocks *clocks : {&clocks_, &plannedClocks_})
    clocks->forget(false);
  down_ = up_ = nullptr;
  context_ = nullptr;
}

} // namespace pumpgraph::runtime
