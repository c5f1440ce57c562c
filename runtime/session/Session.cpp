// SPDX-License-Identifier: Apache-2.0
// The memory of a session, as its program sees it.
#include "runtime/session/Session.h"

#include "runtime/session/Step.h"
#include "runtime/state/Backend.h"
#include "runtime/state/Budget.h"
#include "runtime/state/Exchange.h"
#include "runtime/state/Links.h"
#include "runtime/state/Values.h"

#include <algorithm>

namespace pumpgraph::runtime {
namespace {

/// For the driver to say that a graph is gone, where its memory is wanted.
constexpr std::chrono::milliseconds graphsEndWithin{20};

bool isShortage(const Error &error) {
  return error.status == PUMPGRAPH_OUT_OF_DEVICE_MEMORY || error.status == PUMPGRAPH_OUT_OF_HOST_MEMORY;
}

CUdeviceptr addressOf(const void *pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

} // namespace

Session::Session(std::unique_ptr<SessionState> state) : state_(std::move(state)) {}

Session::~Session() = default;

Expected<std::unique_ptr<Session>> Session::create(const SessionOptions &options,
                                                   std::shared_ptr<const Driver> driver) {
  if (!options.unlimited && options.budgetBytes < pageBytes)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "a budget of {}; at least one page of {} is needed, or unlimited",
                bytesText(options.budgetBytes), bytesText(pageBytes));
  auto state = std::make_unique<SessionState>(options, std::move(driver));
  PUMPGRAPH_TRY(open(*state));
  return std::unique_ptr<Session>(new Session(std::move(state)));
}

Status Session::health() const {
  return state_->driver->health();
}

Messages &Session::messages() {
  return state_->messages;
}

Progress &Session::progress() {
  return state_->progress;
}

const std::uint64_t &Session::departures() const {
  return state_->values.departures;
}

static std::uint64_t framesBesidePlans(const SessionState &session) {
  std::uint64_t wanted = 0;
  for (const std::unique_ptr<StepState> &step : session.steps)
    if (step->isRewritten())
      wanted = std::max(wanted, step->memory.residence->framesWanted());
  return wanted == 0 ? UINT64_MAX
                     : session.memory.frames->budgetFrames() - std::min(session.memory.frames->budgetFrames(), wanted);
}

/// Nothing where the stream is not being captured, or addresses are not used again.
static LastNodes lastNodesOf(const SessionState &session, CUstream stream) {
  if (!session.memory.heap->usesAddressesAgain())
    return {};
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  const CUgraphNode *nodes = nullptr;
  const CUgraphEdgeData *edges = nullptr; // asked for, for the driver refuses to answer without if there are any
  std::size_t count = 0;
  const Status asked = session.driver->streamGetCaptureInfo(stream, &status, nullptr, &graph, &nodes, &edges, &count);
  return asked && status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? LastNodes(nodes, nodes + count) : LastNodes();
}

/// Memory of graphs that have just been destroyed counts as free.
static Expected<CUdeviceptr> allocateOn(SessionState &session, CUstream stream, std::uint64_t size,
                                        std::string_view name, GraphNumber graph) {
  Expected<CUdeviceptr> address =
      session.memory.heap->allocate(size, stream, name, lastNodesOf(session, stream), graph);
  if (address || session.capture.otherGraphs.empty() || !isShortage(address.error()))
    return address;
  const std::vector<GraphNumber> ended = session.capture.otherGraphs.waitForEnded(graphsEndWithin);
  if (ended.empty())
    return address;
  session.memory.heap->graphsEnded(ended);
  return session.memory.heap->allocate(size, stream, name, lastNodesOf(session, stream), graph);
}

Expected<BudgetState> Session::keepToBudget() {
  SessionState &session = *state_;
  const Entered entered(session);
  return lookAtBudget(session);
}

/// Whether an order between streams would become part of a graph, or break its capture.
static Expected<bool> isAnyCaptured(SessionState &session, const std::set<CUstream> &streams, CUstream stream) {
  for (const CUstream each : streams)
    if (const Expected<GraphNumber> graph = session.capture.otherGraphs.capturedOn(each); !graph || *graph != 0)
      return graph ? Expected<bool>(true) : tl::unexpected<Error>(graph.error());
  const Expected<GraphNumber> graph = session.capture.otherGraphs.capturedOn(stream);
  return graph ? Expected<bool>(*graph != 0) : tl::unexpected<Error>(graph.error());
}

/// In a capture of ours the graph has the order: nothing gets memory again before it is adopted or dropped, and what
/// ran before the capture was waited for.
static Status freeInOrder(SessionState &session, CUdeviceptr pointer, CUstream stream) {
  if (const std::set<CUstream> *streams = session.memory.uses.of(pointer)) {
    if (session.memory.heap->capturing()) {
      session.memory.uses.forget(pointer);
      return session.memory.heap->free(pointer, stream);
    }
    const Expected<bool> isCaptured = isAnyCaptured(session, *streams, stream);
    if (!isCaptured)
      return tl::unexpected<Error>(isCaptured.error());
    if (*isCaptured) {
      session.memory.freedLater.emplace_back(pointer, stream);
      return {};
    }
    PUMPGRAPH_TRY(session.memory.uses.orderBefore(*session.driver, pointer, stream));
  }
  return session.memory.heap->free(pointer, stream);
}

/// What could not be freed while a stream was captured.
static Status freeThoseOfCaptures(SessionState &session) {
  for (const auto &[pointer, stream] : std::exchange(session.memory.freedLater, {}))
    PUMPGRAPH_TRY(freeInOrder(session, pointer, stream));
  return {};
}

Expected<void *> Session::allocate(std::uint64_t size, CUstream stream, std::string_view name) {
  SessionState &session = *state_;
  const Entered entered(session);
  if (session.values.allAreLost)
    return fail(PUMPGRAPH_INTERNAL, "the session has lost its memory in an earlier failure");
  session.memory.heap->graphsEnded(session.capture.otherGraphs.takeEnded());
  PUMPGRAPH_TRY(freeThoseOfCaptures(session));
  const Expected<GraphNumber> graph =
      session.memory.heap->capturing() ? GraphNumber{0} : session.capture.otherGraphs.capturedOn(stream);
  if (!graph)
    return tl::unexpected<Error>(graph.error());
  if (*graph != 0)
    session.memory.heap->limitGraphs(framesBesidePlans(session));
  const bool mayWait = !session.memory.heap->capturing() && *graph == 0;
  PUMPGRAPH_TRY(fitBudgetFor(session, size, mayWait));
  const bool isPaged = mayWait && session.memory.paging->isOf(stream);
  session.memory.heap->makeRoomBy(isPaged ? &session.memory.paging->maker() : nullptr);
  const Expected<CUdeviceptr> address = allocateOn(session, stream, size, name, *graph);
  session.memory.heap->makeRoomBy(nullptr);
  if (!address)
    return tl::unexpected<Error>(address.error());
  if (isPaged)
    session.memory.paging->allocated(session.memory.heap->find(*address)->block);
  return reinterpret_cast<void *>(*address);
}

Status Session::free(void *pointer, CUstream stream) {
  SessionState &session = *state_;
  const Entered entered(session);
  PUMPGRAPH_TRY(freeThoseOfCaptures(session));
  return freeInOrder(session, addressOf(pointer), stream);
}

Status Session::freeFor(void *pointer, CUstream stream) {
  SessionState &session = *state_;
  const Entered entered(session);
  PUMPGRAPH_TRY(freeThoseOfCaptures(session));
  const Expected<GraphNumber> graph =
      session.memory.heap->capturing() ? GraphNumber{0} : session.capture.otherGraphs.capturedOn(stream);
  if (!graph)
    return tl::unexpected<Error>(graph.error());
  if (*graph == 0)
    return freeInOrder(session, addressOf(pointer), stream);
  session.memory.heap->graphBegins(*graph);
  const bool keeps = session.memory.heap->keepFreed(true);
  const Status freed = freeInOrder(session, addressOf(pointer), stream);
  session.memory.heap->keepFreed(keeps);
  return freed;
}

Status Session::freeWhenIdle(void *pointer) {
  SessionState &session = *state_;
  const Entered entered(session);
  PUMPGRAPH_TRY(freeThoseOfCaptures(session));
  if (!session.memory.heap->capturing())
    PUMPGRAPH_TRY_WHILE(session.driver->ctxSynchronize(), "waiting before memory is freed");
  session.memory.uses.forget(addressOf(pointer));
  return session.memory.heap->free(addressOf(pointer), CU_STREAM_LEGACY);
}

Expected<std::uint64_t> Session::beginTag(std::string_view name) {
  const std::lock_guard lock(state_->mutex);
  return state_->memory.heap->tags().begin(name);
}

Status Session::endTag(std::uint64_t tag) {
  const std::lock_guard lock(state_->mutex);
  return state_->memory.heap->tags().end(tag);
}

std::vector<TagRow> Session::tags(bool resetsPeaks) {
  const std::lock_guard lock(state_->mutex);
  Tags &tags = state_->memory.heap->tags();
  std::vector<TagRow> rows = tags.rows();
  if (resetsPeaks)
    tags.resetPeaks();
  return rows;
}

Status Session::recordStream(void *pointer, CUstream stream) {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  const std::optional<Hit> hit = session.memory.heap->find(addressOf(pointer));
  if (!hit || !session.memory.heap->member(*hit).live)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "{} is in no live allocation of the session", pointer);
  session.memory.uses.note(session.memory.heap->block(hit->block).address + session.memory.heap->member(*hit).offset,
                           stream);
  return {};
}

Status Session::declarePrivate(void *pointer) {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  const Expected<Hit> hit = session.memory.heap->require(pointer);
  if (!hit)
    return tl::unexpected<Error>(hit.error());
  session.memory.heap->member(*hit).declaredPrivate = true;
  return {};
}

Status Session::declarePresent(void *pointer) {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  const Expected<Hit> hit = session.memory.heap->require(pointer);
  if (!hit)
    return tl::unexpected<Error>(hit.error());
  Allocation &allocation = session.memory.heap->member(*hit);
  if (allocation.declaredPrivate && !allocation.declaredPresent && session.memory.heap->block(hit->block).retainers > 0)
    return fail(PUMPGRAPH_INVALID_ARGUMENT,
                "\"{}\" was declared private, and the plan of a step may have it in host memory between replays",
                allocation.name);
  allocation.declaredPrivate = allocation.declaredPresent = true;
  return {};
}

Status Session::name(void *pointer, std::string_view name) {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  const Expected<Hit> hit = session.memory.heap->require(pointer);
  if (!hit)
    return tl::unexpected<Error>(hit.error());
  session.memory.heap->member(*hit).name = name;
  return {};
}

MemoryStatistics Session::statistics() {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  const std::uint64_t frames = session.memory.frames->created() * pageBytes;
  const std::optional<std::uint64_t> besides = bytesBesideFrames(session);
  return {session.options.unlimited ? 0 : session.options.budgetBytes,
          session.memory.host->limitBytes(),
          frames,
          session.memory.frames->mostCreated() * pageBytes,
          session.options.unlimited ? 0 : session.memory.frames->budgetFrames() * pageBytes,
          session.options.unlimited ? 0 : session.memory.frames->available() * pageBytes,
          besides ? frames + *besides : 0,
          session.memory.host->backedBytes(),
          session.memory.host->pinnedBytes(),
          session.memory.heap->stats()};
}

std::vector<LiveBlock> Session::liveBlocks() {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  std::vector<LiveBlock> blocks;
  for (const BlockId id : session.memory.heap->blocks()) {
    const Block &block = session.memory.heap->block(id);
    LiveBlock found{block.address, block.bytes(), block.shared, {}};
    for (const Allocation &member : block.members)
      if (member.live)
        found.parts.push_back({block.address + member.offset, member.size, member.stream});
    if (!found.parts.empty() || (block.hasMemory() && !block.members.empty()))
      blocks.push_back(std::move(found));
  }
  std::sort(blocks.begin(), blocks.end(), [](const LiveBlock &a, const LiveBlock &b) { return a.address < b.address; });
  return blocks;
}

void Session::resetPeaks() {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  session.memory.frames->resetPeak();
  session.memory.heap->resetPeaks();
}

/// Outside the plan in force values are at their addresses already; then only replays have to be kept out.
Status Session::map(void *pointer) {
  SessionState &session = *state_;
  const Entered entered(session);
  const Expected<Hit> hit = session.memory.heap->require(pointer);
  if (!hit)
    return tl::unexpected<Error>(hit.error());
  if (session.backend.isManaged &&
      !choosesByStep(session)) // at its address, and not to be looked at while a replay runs
    return session.driver->ctxSynchronize();
  PUMPGRAPH_TRY(checkHasValue(session, hit->block));
  if (!isPlanned(session, hit->block))
    return {};
  const StepState *step = stepInForce(session);
  PUMPGRAPH_TRY_WHILE(step ? step->memory.residence->lend(hit->block) : session.driver->ctxSynchronize(),
                      "mapping \"{}\"", session.memory.heap->member(*hit).name);
  ++session.values.maps[hit->block];
  return {};
}

Status Session::unmap(void *pointer) {
  SessionState &session = *state_;
  const Entered entered(session);
  const Expected<Hit> hit = session.memory.heap->require(pointer);
  if (!hit)
    return tl::unexpected<Error>(hit.error());
  const auto mapped = session.values.maps.find(hit->block);
  if (mapped == session.values.maps.end())
    return {};
  const StepState *step = stepInForce(session);
  const Status returned = step ? step->memory.residence->giveBack(hit->block) : Status{};
  const bool isStillLent = !returned && !step->memory.residence->lost(); // may be tried again
  if (!isStillLent && --mapped->second == 0)
    session.values.maps.erase(mapped);
  PUMPGRAPH_TRY_WHILE(returned, "unmapping \"{}\"", session.memory.heap->member(*hit).name);
  return {};
}

Status Session::bring(std::span<void *const> pointers, Use use) {
  SessionState &session = *state_;
  const Entered entered(session);
  std::vector<BlockId> blocks;
  for (void *pointer : pointers) {
    const Expected<Hit> hit = session.memory.heap->require(pointer);
    if (!hit)
      return tl::unexpected<Error>(hit.error());
    PUMPGRAPH_TRY(checkHasValue(session, hit->block));
    blocks.push_back(hit->block);
  }
  const StepState *step = session.backend.isManaged ? nullptr : stepInForce(session);
  PUMPGRAPH_TRY_WHILE(step ? step->memory.residence->bring(blocks, use) : session.driver->ctxSynchronize(),
                      "bringing {} buffers to their addresses", pointers.size());
  return {};
}

Status Session::takeBack() {
  SessionState &session = *state_;
  const Entered entered(session);
  session.capture.inForceBefore = nullptr;
  PUMPGRAPH_TRY(takePlanBack(session));
  for (const BlockId block : session.memory.heap->blocks())
    if (session.memory.heap->block(block).hasLiveMember())
      PUMPGRAPH_TRY(checkHasValue(session, block));
  return {};
}

Status Session::emptyCache() {
  SessionState &session = *state_;
  const Entered entered(session);
  if (session.memory.heap->capturing())
    return {};
  session.memory.heap->graphsEnded(session.capture.otherGraphs.takeEnded());
  PUMPGRAPH_TRY(session.memory.heap->flushCache());
  if (session.memory.paging->isOn())
    return {};
  // Where host memory is full too, values stay in pieces of device memory until there is room.
  if (const Status settled = session.memory.paging->settle();
      !settled && settled.error().status != PUMPGRAPH_OUT_OF_HOST_MEMORY)
    return settled;
  session.memory.host->giveBackReleased();
  return {};
}

Status Session::measureLink(std::chrono::duration<double> time) {
  SessionState &session = *state_;
  const Entered entered(session);
  if (session.backend.isManaged)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "the link of a session on managed memory is measured with its first plan");
  if (session.memory.heap->capturing())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "the link cannot be measured during a capture");
  return measureLinkBesideOthers(session, time);
}

bool Session::beginPaging(CUstream stream) {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  if (session.backend.isManaged || session.options.unlimited || stepInForce(session))
    return false;
  std::set<BlockId> fixed; // the copies of steps left as captured would have to be renewed
  for (const std::unique_ptr<StepState> &step : session.steps)
    if (!step->isRewritten())
      fixed.insert(step->captured.blocks.begin(), step->captured.blocks.end());
  session.memory.paging->begin(stream, std::move(fixed));
  return true;
}

Status Session::pageIn(std::span<void *const> pointers) {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  if (!session.memory.paging->isOn() || session.memory.heap->capturing())
    return {};
  const ContextScope scope(*session.driver, session.device.context);
  std::vector<BlockId> blocks;
  for (void *pointer : pointers)
    if (const std::optional<Hit> hit = session.memory.heap->find(addressOf(pointer)))
      blocks.push_back(hit->block);
  return session.memory.paging->use(blocks);
}

std::uint64_t Session::endPaging() {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  const bool wasOn = session.memory.paging->isOn();
  session.memory.paging->end();
  return wasOn ? session.memory.paging->movedBytes() : 0;
}

void Session::keepFreedForGraphs(bool on) {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  session.memory.heap->graphsEnded(session.capture.otherGraphs.takeEnded());
  session.memory.heap->keepFreed(on);
}

void Session::freedIsScratch(bool on) {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  session.memory.heap->freedIsScratch(on);
}

} // namespace pumpgraph::runtime
