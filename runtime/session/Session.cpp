// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/Session.h"

#include "runtime/messages/NvtxRange.h"
#include "runtime/session/Adoption.h"
#include "runtime/session/Step.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace pumpgraph::runtime {
namespace {

/// As many as evictions gain from (docs/decisions/12-managed-evictions.md).
constexpr std::size_t contextsForEvictions = 4;

/// What the session's own copies and scans go through.
constexpr std::uint64_t stagingBytes = std::uint64_t{16} << 20;

/// Of host memory that buffers had: what a loop allocates in each turn, and an exchange of plans, get it again.
constexpr std::uint64_t mostReleasedBytes = std::uint64_t{1} << 30;

/// Of a budget for the whole process, for what comes between two looks at it: the executable graph, kernels that are
/// loaded when they are first launched.
constexpr std::uint64_t reserveBytes = std::uint64_t{64} << 20;

/// For the driver to say that a graph is gone, where its memory is wanted.
constexpr std::chrono::milliseconds graphsEndWithin{20};

/// So many bytes of allocations from one look at what the process has to the next.
constexpr std::uint64_t fitEveryBytes = std::uint64_t{64} << 20;

bool isShortage(const Error &error) {
  return error.status == PUMPGRAPH_OUT_OF_DEVICE_MEMORY || error.status == PUMPGRAPH_OUT_OF_HOST_MEMORY;
}

CUdeviceptr addressOf(const void *pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

} // namespace

Session::Session(const SessionOptions &options, std::shared_ptr<const Driver> driver)
    : options_(options), driver_(std::move(driver)), otherGraphs_(*driver_) {}

Expected<std::unique_ptr<Session>> Session::create(const SessionOptions &options,
                                                   std::shared_ptr<const Driver> driver) {
  if (!options.unlimited && options.budgetBytes < pageBytes)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "a budget of {}; at least one page of {} is needed, or unlimited",
                bytesText(options.budgetBytes), bytesText(pageBytes));
  std::unique_ptr<Session> session(new Session(options, std::move(driver)));
  PUMPGRAPH_TRY(session->open());
  return session;
}

Status Session::open() {
  PUMPGRAPH_TRY(openDevice());
  const ContextScope scope(*driver_, context_);
  PUMPGRAPH_TRY_WHILE(driver_->streamCreate(&stream_, CU_STREAM_NON_BLOCKING), "creating the session's stream");
  std::size_t deviceBytes = 0;
  PUMPGRAPH_TRY_WHILE(driver_->deviceTotalMem(&deviceBytes, options_.device), "opening device {}", options_.device);
  if (!options_.unlimited && options_.budgetBytes > deviceBytes)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "a budget of {}; device {} has {}", bytesText(options_.budgetBytes),
                options_.device, bytesText(deviceBytes));
  const std::uint64_t budgetFrames = (options_.unlimited ? deviceBytes : options_.budgetBytes) / pageBytes;
  const std::uint64_t hostLimit = options_.hostLimitBytes != 0 ? options_.hostLimitBytes : availableHostBytes() / 4 * 3;

  if (managed_) {
    PUMPGRAPH_TRY(openArena());
  } else {
    const Expected<std::uint64_t> front = bytesForManaged();
    if (!front)
      return tl::unexpected<Error>(front.error());
    Expected<std::unique_ptr<AddressSpace>> addresses = AddressSpace::reserve(*driver_, *front);
    if (!addresses)
      return tl::unexpected<Error>(addresses.error());
    addresses_ = std::move(*addresses);
  }
  frames_ = std::make_unique<FramePool>(*driver_, options_.device, budgetFrames);
  PUMPGRAPH_TRY(openProcessBudget());
  host_ = std::make_unique<HostMemory>(*driver_, options_.device, hostLimit,
                                       std::min(mostReleasedBytes, hostLimit / 16), &progress_);
  mapper_ = std::make_unique<PageMapper>(*driver_, options_.device, *frames_);
  heap_ = std::make_unique<Heap>(*driver_, *addresses_, *frames_, *host_, *mapper_, managed_);
  paging_ = std::make_unique<Paging>(*driver_, *frames_, *host_, *heap_);
  Expected<std::unique_ptr<PinnedPool>> staging = PinnedPool::create(*driver_, *host_, stagingBytes);
  if (!staging)
    return tl::unexpected<Error>(staging.error());
  staging_ = std::move(*staging);
  return openLink();
}

Status Session::openProcessBudget() {
  if (!options_.processMemory || options_.unlimited)
    return {};
  // What of managed memory is on the device is the driver's choice, and in the process's figure too.
  const Expected<std::uint64_t> used =
      managed_ ? fail(PUMPGRAPH_INVALID_ARGUMENT, "managed memory") : options_.processMemory();
  if (!used) {
    notes_.push_back(fmt::format("the budget is that of buffers alone, not of the process: {}", used.error().message));
    options_.processMemory = nullptr;
    return {};
  }
  if (options_.budgetBytes < *used + reserveBytes + pageBytes)
    return fail(PUMPGRAPH_INVALID_ARGUMENT,
                "a budget of {} for the whole process, which has {} on the device before its first buffer and needs {} "
                "for graphs and kernels",
                bytesText(options_.budgetBytes), bytesText(*used), bytesText(reserveBytes));
  return setFrameBudget(*used, reserveBytes);
}

std::optional<std::uint64_t> Session::bytesBesideFrames() const {
  if (!options_.processMemory)
    return std::nullopt;
  const Expected<std::uint64_t> used = options_.processMemory();
  if (!used)
    return std::nullopt;
  const std::uint64_t frames = frames_->created() * pageBytes;
  return std::max(*used, frames) - frames;
}

Status Session::fitBudget() {
  // The plans that there are count on what they were made for; the reserve is there to be used up after them.
  if (std::any_of(steps_.begin(), steps_.end(), [](const std::unique_ptr<Step> &step) { return step->rewritten(); }))
    return {};
  const std::optional<std::uint64_t> besides = bytesBesideFrames();
  if (!besides)
    return {};
  return setFrameBudget(*besides, reserveBytes);
}

Status Session::setFrameBudget(std::uint64_t besides, std::uint64_t reserve) {
  besidesAtFit_ = besides;
  const std::uint64_t taken = besides + reserve;
  frames_->setBudget((std::max(options_.budgetBytes, taken) - taken) / pageBytes);
  return frames_->created() > frames_->budgetFrames() ? heap_->flushCache() : Status{};
}

Expected<BudgetState> Session::keepToBudget() {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  return lookAtBudget();
}

Expected<BudgetState> Session::lookAtBudget() {
  nextLook_ = std::chrono::steady_clock::now() + options_.budgetLooks;
  BudgetState state{options_.budgetBytes, 0, ""};
  const std::optional<std::uint64_t> besides = heap_->capturing() ? std::nullopt : bytesBesideFrames();
  if (!besides)
    return state;
  state.processBytes = *besides + frames_->created() * pageBytes;
  const std::uint64_t before = besidesAtFit_;
  if (state.processBytes <= options_.budgetBytes || *besides <= before) // within it, or all is said and done
    return state;
  framesBeforeLook_ = frames_->budgetFrames();
  // Most of the graphs that the reserve is for are there by now.
  PUMPGRAPH_TRY_WHILE(setFrameBudget(*besides, reserveBytes / 2), "keeping to the budget of the process");
  for (const std::unique_ptr<Step> &step : steps_)
    step->exceedsBudget_ = step->rewritten();
  state.message = fmt::format("the process has {} on the device, {} more than its budget of {}: others have {} beside "
                              "PumpGraph's frames, {} more "
                              "than when those were counted last; steps are planned again for the {} that are left",
                              bytesText(state.processBytes), bytesText(state.processBytes - options_.budgetBytes),
                              bytesText(options_.budgetBytes), bytesText(*besides), bytesText(*besides - before),
                              bytesText(frames_->budgetFrames() * pageBytes));
  return state;
}

void Session::lookAtBudgetFor(Step &step) {
  if (!options_.processMemory || std::chrono::steady_clock::now() < nextLook_)
    return;
  const Expected<BudgetState> state = lookAtBudget();
  if (state && state->message.empty())
    return;
  step.warn(state ? state->message : state.error().message);
  step.writeReport();
}

Status Session::openDevice() {
  int count = 0;
  PUMPGRAPH_TRY_WHILE(driver_->deviceGetCount(&count), "looking for CUDA devices");
  if (count == 0)
    return fail(PUMPGRAPH_NO_DRIVER, "the driver sees no CUDA device: check nvidia-smi and CUDA_VISIBLE_DEVICES");
  CUdevice device = 0;
  if (options_.device < 0 || options_.device >= count)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "device {} of {}", options_.device, count);
  PUMPGRAPH_TRY_WHILE(driver_->deviceGet(&device, options_.device), "opening device {}", options_.device);
  const Expected<bool> managed = chooseManaged(device);
  if (!managed)
    return tl::unexpected<Error>(managed.error());
  managed_ = *managed;
  char name[256] = {};
  PUMPGRAPH_TRY_WHILE(driver_->deviceGetName(name, sizeof name, device), "opening device {}", device);
  deviceName_ = name;
  arithmeticSpeed_ = ArithmeticSpeed::of(*driver_, device);
  PUMPGRAPH_TRY_WHILE(driver_->devicePrimaryCtxRetain(&context_, device), "opening device {}", device);
  contextRetained_ = true;
  CUcontext current = nullptr;
  PUMPGRAPH_TRY(driver_->ctxGetCurrent(&current));
  if (!current)
    PUMPGRAPH_TRY(driver_->ctxSetCurrent(context_));
  return {};
}

Status Session::openLink() {
  if (managed_)
    return {}; // see managedLink()
  const std::string machine = fmt::format("{} beside {}", deviceName_, processorName());
  std::string file;
  KeptLink known{machine, {}, 0};
  if (!options_.cacheDirectory.empty()) {
    CUuuid uuid{};
    int version = 0;
    PUMPGRAPH_TRY(driver_->deviceGetUuid(&uuid, options_.device));
    PUMPGRAPH_TRY(driver_->driverGetVersion(&version));
    file = linkCacheFile(options_.cacheDirectory, uuid, version);
    const std::optional<KeptLink> kept = loadLink(file);
    if (kept && kept->machine == machine)
      known = *kept;
    else if (kept)
      notes_.push_back(fmt::format("the link speeds in {} are of another machine ({}); they were measured anew", file,
                                   kept->machine.empty() ? "it does not say which" : kept->machine));
  }
  link_ = known.speed;
  if (known.measurements >= wantedMeasurements)
    return {};
  const Expected<LinkSpeed> measured = measureLink(tools());
  if (!measured)
    return tl::unexpected<Error>(measured.error());
  link_ = fastestOf(known.speed, *measured);
  messages_.add(Level::Info,
                fmt::format("the link of {} moves {:.1f} GB/s up, {:.1f} down and {:.1f} in both directions",
                            deviceName_, link_.up / 1e9, link_.down / 1e9, link_.both / 1e9));
  if (!file.empty())
    storeLink(file, {machine, link_, known.measurements + 1});
  return {};
}

Session::~Session() {
  if (!contextRetained_)
    return;
  {
    const ContextScope scope(*driver_, context_);
    driver_->ctxSynchronize.raw();
    for (const std::unique_ptr<Step> &step : steps_)
      if (step->residence_)
        step->residence_->abandon();
    steps_.clear();
    leftInGraphs_.clear();
    asidesInGraphs_.clear();
    laneContexts_.reset();
    if (lastReplay_.end)
      driver_->eventDestroy.raw(lastReplay_.end);
    rehearsal_.reset();
    paging_.reset();
    heap_.reset();
    staging_.reset();
    mapper_.reset();
    host_.reset();
    frames_.reset();
    addresses_.reset();
    arena_.reset();
    fillKernel_.reset();
    if (stream_)
      driver_->streamDestroy.raw(stream_);
  }
  driver_->devicePrimaryCtxRelease.raw(options_.device);
}

Expected<void *> Session::allocate(std::uint64_t size, CUstream stream, std::string_view name) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  if (memoryIsLost_)
    return fail(PUMPGRAPH_INTERNAL, "the session has lost its memory in an earlier failure");
  heap_->graphsEnded(otherGraphs_.takeEnded());
  const Expected<GraphNumber> graph = heap_->capturing() ? GraphNumber{0} : otherGraphs_.capturedOn(stream);
  if (!graph)
    return tl::unexpected<Error>(graph.error());
  if (*graph != 0)
    heap_->limitGraphs(framesBesidePlans());
  allocatedSinceFit_ += size;
  const bool mayWait = !heap_->capturing() && *graph == 0;
  if (allocatedSinceFit_ >= fitEveryBytes && mayWait) {
    allocatedSinceFit_ = 0;
    PUMPGRAPH_TRY_WHILE(fitBudget(), "keeping to the budget of the process");
  }
  const bool isPaged = mayWait && paging_->isOf(stream);
  heap_->makeRoomBy(isPaged ? &paging_->maker() : nullptr);
  const Expected<CUdeviceptr> address = allocateOn(stream, size, name, *graph);
  heap_->makeRoomBy(nullptr);
  if (!address)
    return tl::unexpected<Error>(address.error());
  if (isPaged)
    paging_->allocated(heap_->find(*address)->block);
  return reinterpret_cast<void *>(*address);
}

std::uint64_t Session::framesBesidePlans() const {
  std::uint64_t wanted = 0;
  for (const std::unique_ptr<Step> &step : steps_)
    if (step->rewritten())
      wanted = std::max(wanted, step->residence_->framesWanted());
  return wanted == 0 ? UINT64_MAX : frames_->budgetFrames() - std::min(frames_->budgetFrames(), wanted);
}

/// Memory of graphs that have just been destroyed counts as free.
Expected<CUdeviceptr> Session::allocateOn(CUstream stream, std::uint64_t size, std::string_view name,
                                          GraphNumber graph) {
  Expected<CUdeviceptr> address = heap_->allocate(size, stream, name, lastNodesOf(stream), graph);
  if (address || otherGraphs_.empty() || !isShortage(address.error()))
    return address;
  const std::vector<GraphNumber> ended = otherGraphs_.waitForEnded(graphsEndWithin);
  if (ended.empty())
    return address;
  heap_->graphsEnded(ended);
  return heap_->allocate(size, stream, name, lastNodesOf(stream), graph);
}

/// Nothing where the stream is not being captured, or addresses are not used again.
LastNodes Session::lastNodesOf(CUstream stream) const {
  if (!heap_->usesAddressesAgain())
    return {};
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  const CUgraphNode *nodes = nullptr;
  const CUgraphEdgeData *edges = nullptr; // asked for, for the driver refuses to answer without if there are any
  std::size_t count = 0;
  const Status asked = driver_->streamGetCaptureInfo(stream, &status, nullptr, &graph, &nodes, &edges, &count);
  return asked && status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? LastNodes(nodes, nodes + count) : LastNodes();
}

Status Session::free(void *pointer, CUstream stream) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  return heap_->free(addressOf(pointer), stream);
}

Status Session::declarePrivate(void *pointer) {
  const std::lock_guard lock(mutex_);
  const Expected<Hit> hit = heap_->require(pointer);
  if (!hit)
    return tl::unexpected<Error>(hit.error());
  heap_->member(*hit).declaredPrivate = true;
  return {};
}

Status Session::declarePresent(void *pointer) {
  const std::lock_guard lock(mutex_);
  const Expected<Hit> hit = heap_->require(pointer);
  if (!hit)
    return tl::unexpected<Error>(hit.error());
  Allocation &allocation = heap_->member(*hit);
  if (allocation.declaredPrivate && !allocation.declaredPresent && heap_->block(hit->block).retainers > 0)
    return fail(PUMPGRAPH_INVALID_ARGUMENT,
                "\"{}\" was declared private, and the plan of a step may have it in host memory between replays",
                allocation.name);
  allocation.declaredPrivate = allocation.declaredPresent = true;
  return {};
}

Status Session::name(void *pointer, std::string_view name) {
  const std::lock_guard lock(mutex_);
  const Expected<Hit> hit = heap_->require(pointer);
  if (!hit)
    return tl::unexpected<Error>(hit.error());
  heap_->member(*hit).name = name;
  return {};
}

MemoryStatistics Session::statistics() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t frames = frames_->created() * pageBytes;
  const std::optional<std::uint64_t> besides = bytesBesideFrames();
  return {options_.unlimited ? 0 : options_.budgetBytes,
          host_->limitBytes(),
          frames,
          frames_->mostCreated() * pageBytes,
          options_.unlimited ? 0 : frames_->budgetFrames() * pageBytes,
          options_.unlimited ? 0 : frames_->available() * pageBytes,
          besides ? frames + *besides : 0,
          host_->backedBytes(),
          host_->pinnedBytes(),
          heap_->stats()};
}

std::vector<LiveBlock> Session::liveBlocks() {
  const std::lock_guard lock(mutex_);
  std::vector<LiveBlock> blocks;
  for (const BlockId id : heap_->blocks()) {
    const Block &block = heap_->block(id);
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
  const std::lock_guard lock(mutex_);
  frames_->resetPeak();
  heap_->resetPeaks();
}

/// Outside the plan in force values are at their addresses already; then only replays have to be kept out.
Status Session::map(void *pointer) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  const Expected<Hit> hit = heap_->require(pointer);
  if (!hit)
    return tl::unexpected<Error>(hit.error());
  if (managed_ && !choosesByStep()) // at its address, and not to be looked at while a replay runs
    return driver_->ctxSynchronize();
  PUMPGRAPH_TRY(checkHasValue(hit->block));
  if (!isPlanned(hit->block))
    return {};
  const Step *step = stepInForce();
  PUMPGRAPH_TRY_WHILE(step ? step->residence_->lend(hit->block) : driver_->ctxSynchronize(), "mapping \"{}\"",
                      heap_->member(*hit).name);
  ++maps_[hit->block];
  return {};
}

Status Session::unmap(void *pointer) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  const Expected<Hit> hit = heap_->require(pointer);
  if (!hit)
    return tl::unexpected<Error>(hit.error());
  const auto mapped = maps_.find(hit->block);
  if (mapped == maps_.end())
    return {};
  const Step *step = stepInForce();
  const Status returned = step ? step->residence_->giveBack(hit->block) : Status{};
  const bool isStillLent = !returned && !step->residence_->lost(); // may be tried again
  if (!isStillLent && --mapped->second == 0)
    maps_.erase(mapped);
  PUMPGRAPH_TRY_WHILE(returned, "unmapping \"{}\"", heap_->member(*hit).name);
  return {};
}

Status Session::bring(std::span<void *const> pointers, Use use) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  std::vector<BlockId> blocks;
  for (void *pointer : pointers) {
    const Expected<Hit> hit = heap_->require(pointer);
    if (!hit)
      return tl::unexpected<Error>(hit.error());
    PUMPGRAPH_TRY(checkHasValue(hit->block));
    blocks.push_back(hit->block);
  }
  const Step *step = managed_ ? nullptr : stepInForce();
  PUMPGRAPH_TRY_WHILE(step ? step->residence_->bring(blocks, use) : driver_->ctxSynchronize(),
                      "bringing {} buffers to their addresses", pointers.size());
  return {};
}

Status Session::emptyCache() {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  if (heap_->capturing())
    return {};
  heap_->graphsEnded(otherGraphs_.takeEnded());
  PUMPGRAPH_TRY(heap_->flushCache());
  if (paging_->isOn())
    return {};
  // Where host memory is full too, values stay in pieces of device memory until there is room.
  if (const Status settled = paging_->settle(); !settled && settled.error().status != PUMPGRAPH_OUT_OF_HOST_MEMORY)
    return settled;
  host_->giveBackReleased();
  return {};
}

bool Session::beginPaging(CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (managed_ || options_.unlimited || stepInForce())
    return false;
  std::set<BlockId> fixed; // the copies of steps left as captured would have to be renewed
  for (const std::unique_ptr<Step> &step : steps_)
    if (!step->rewritten())
      fixed.insert(step->captured_.blocks.begin(), step->captured_.blocks.end());
  paging_->begin(stream, std::move(fixed));
  return true;
}

Status Session::pageIn(std::span<void *const> pointers) {
  const std::lock_guard lock(mutex_);
  if (!paging_->isOn() || heap_->capturing())
    return {};
  const ContextScope scope(*driver_, context_);
  std::vector<BlockId> blocks;
  for (void *pointer : pointers)
    if (const std::optional<Hit> hit = heap_->find(addressOf(pointer)))
      blocks.push_back(hit->block);
  return paging_->use(blocks);
}

std::uint64_t Session::endPaging() {
  const std::lock_guard lock(mutex_);
  const bool wasOn = paging_->isOn();
  paging_->end();
  return wasOn ? paging_->movedBytes() : 0;
}

void Session::keepFreedForGraphs(bool on) {
  const std::lock_guard lock(mutex_);
  heap_->graphsEnded(otherGraphs_.takeEnded());
  heap_->keepFreed(on);
}

void Session::freedIsScratch(bool on) {
  const std::lock_guard lock(mutex_);
  heap_->freedIsScratch(on);
}

Status Session::captureBegin() {
  const std::lock_guard lock(mutex_);
  if (heap_->capturing())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "a capture is already running in this session");
  const ContextScope scope(*driver_, context_);
  heap_->graphsEnded(otherGraphs_.takeEnded());
  // Captured copies need memory at the addresses they name.
  if (Step *inForce = stepInForce()) {
    PUMPGRAPH_TRY_WHILE(takePlanBack(), "before a capture");
    beforeCapture_ = inForce;
  }
  PUMPGRAPH_TRY_WHILE(paging_->settle(), "before a capture");
  heap_->beginCapture(managed_ && rehearsal_ ? rehearsal_->allocations() : std::vector<RehearsedAllocation>());
  declarations_ = {};
  captureWatch_ = {};
  progress_.begin(Phase::Capturing, 2);
  progress_.advance(rehearsal_ ? 1 : 0);
  return {};
}

Status Session::captureEnd() {
  const std::lock_guard lock(mutex_);
  if (!heap_->capturing())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "no capture is running in this session");
  heap_->endCapture();
  progress_.end();
  copiesAreOfManaged_ = managed_;
  captureMs_ = captureWatch_.milliseconds();
  return {};
}

Status Session::declareReads(CUstream stream, const std::vector<CUdeviceptr> &pointers) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  const Expected<CUgraph> graph = graphOfCapture(stream);
  return graph ? declarations_.addReads(*driver_, *graph, pointers) : tl::unexpected<Error>(graph.error());
}

Status Session::declareAside(CUstream stream, const std::vector<CUdeviceptr> &pointers) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  const Expected<CUgraph> graph = graphOfCapture(stream);
  return graph ? declarations_.addAsides(*driver_, *graph, pointers) : tl::unexpected<Error>(graph.error());
}

Status Session::declareKernelReads(std::string_view name, std::span<const std::uint32_t> parameters) {
  const std::lock_guard lock(mutex_);
  if (!kernelReads_.add(name, parameters))
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" is no name of a function", name);
  return {};
}

Status Session::declareWrites(CUstream stream, const std::optional<std::vector<CUdeviceptr>> &pointers) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  const Expected<CUgraph> graph = graphOfCapture(stream);
  return graph ? declarations_.addWrites(*driver_, *graph, pointers) : tl::unexpected<Error>(graph.error());
}

Status Session::nameNodes(CUstream stream, std::string_view label) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  const Expected<CUgraph> graph = graphOfCapture(stream);
  return graph ? declarations_.addLabel(*driver_, *graph, label) : tl::unexpected<Error>(graph.error());
}

Status Session::declareOperation(CUstream stream, OperationKind kind) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  const Expected<CUgraph> graph = graphOfCapture(stream);
  return graph ? declarations_.addOperation(*driver_, *graph, kind) : tl::unexpected<Error>(graph.error());
}

Status Session::declareArithmetic(CUstream stream, double operations, ArithmeticKind kind) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  const Expected<CUgraph> graph = graphOfCapture(stream);
  return graph ? declarations_.addArithmetic(*driver_, *graph, arithmeticSpeed_.microseconds(operations, kind))
               : tl::unexpected<Error>(graph.error());
}

Status Session::declareOperation(CUgraph graph, OperationKind kind) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  return declarations_.addOperation(*driver_, graph, kind);
}

Expected<CUgraph> Session::graphOfCapture(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  PUMPGRAPH_TRY_WHILE(driver_->streamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr),
                      "asking for the capture");
  if (!heap_->capturing() || status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return fail(PUMPGRAPH_INVALID_ARGUMENT,
                "something can be said of nodes while the stream is captured for this session");
  return graph;
}

Status Session::rehearse(CUgraph graph) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  if (heap_->capturing() || heap_->capture() == 0)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "a rehearsal needs a graph whose capture has ended");
  const Expected<LiftedGraph> lifted = liftGraph(*driver_, graph, *addresses_, context_);
  if (!lifted)
    return inContext(lifted.error(), "reading the rehearsal");
  rehearsal_.emplace(*lifted, *heap_, declarations_);
  const std::uint64_t pages = heap_->capturedPages();
  heap_->dropCapture();
  const bool isUnseen = std::any_of(lifted->nodes.begin(), lifted->nodes.end(),
                                    [](const LiftedNode &node) { return !node.refusal.empty(); });
  if (!choosesByStep() || isUnseen == managed_)
    return {};
  if (isUnseen) {
    PUMPGRAPH_TRY(heap_->flushCache());
    PUMPGRAPH_TRY(heap_->narrowStandIns());
    if (heap_->hasFramesFor(pages) && !hasManagedStep())
      return {};
  }
  const Expected<std::string> obstacle = isUnseen ? moveToManaged() : moveToVirtual();
  return obstacle ? Status{} : tl::unexpected<Error>(obstacle.error()); // adoption says what is in the way
}

Expected<bool> Session::rehearsalMatches(CUgraph graph) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  if (heap_->capturing() || !rehearsal_)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "a graph is compared after its capture with a rehearsal before it");
  const Expected<LiftedGraph> lifted = liftGraph(*driver_, graph, *addresses_, context_);
  if (!lifted)
    return inContext(lifted.error(), "comparing a graph with the rehearsal");
  return rehearsal_->matches(*lifted);
}

Expected<Step *> Session::adopt(CUgraph graph, const AdoptOptions &options) {
  const std::lock_guard lock(mutex_);
  const NvtxRange range("pumpgraph adopt");
  const ContextScope scope(*driver_, context_);
  if (heap_->capturing())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "the capture has to end before its graph is adopted");
  Step *before = stepInForce() ? stepInForce() : beforeCapture_;
  PUMPGRAPH_TRY_WHILE(takePlanBack(), "adopting \"{}\"", options.name);
  Expected<std::unique_ptr<Step>> step = Adoption(*this, graph, options, before, before ? before : lastInForce_).run();
  if (!step) {
    if (before)
      (void)putInForce(*before); // its next replay tries again
    return tl::unexpected<Error>(step.error());
  }
  beforeCapture_ = nullptr;
  rehearsal_.reset();
  steps_.push_back(std::move(*step));
  if (steps_.back()->rewritten())
    lastInForce_ = steps_.back().get();
  return steps_.back().get();
}

Expected<CUgraph> Session::recordOnce(const Record &record) {
  const NvtxRange range("pumpgraph capture");
  const ContextScope scope(*driver_, context_);
  PUMPGRAPH_TRY(captureBegin());
  // Thread-local: what other threads do with the driver meanwhile is their own business.
  const Status begun = driver_->streamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  const int result = begun ? record(stream_) : 0;
  CUgraph graph = nullptr;
  Status ended;
  if (begun)
    ended = driver_->streamEndCapture(stream_, &graph);
  PUMPGRAPH_TRY(captureEnd());
  PUMPGRAPH_TRY_WHILE(begun, "starting the capture");
  if (result != 0) {
    if (graph)
      driver_->graphDestroy.raw(graph);
    return fail(PUMPGRAPH_CAPTURE_FAILED, "the recording function gave up with {}", result);
  }
  if (!ended || !graph)
    return fail(PUMPGRAPH_CAPTURE_FAILED, "the capture was broken by a call that captures do not allow ({})",
                ended ? "no graph" : ended.error().message);
  return graph;
}

Expected<Step *> Session::capture(const Record &record, const AdoptOptions &options) {
  PUMPGRAPH_TRY_WHILE(emptyCache(), "before a capture");
  const Expected<CUgraph> first = recordOnce(record);
  if (!first)
    return inContext(first.error(), "first capture");
  const Status rehearsed = rehearse(*first);
  driver_->graphDestroy.raw(*first);
  PUMPGRAPH_TRY(rehearsed);
  const Expected<CUgraph> second = recordOnce(record);
  if (!second)
    return inContext(second.error(), "second capture");
  AdoptOptions owning = options;
  owning.ownsGraph = true;
  Expected<Step *> step = adopt(*second, owning);
  if (!step)
    driver_->graphDestroy.raw(*second);
  return step;
}

void Session::destroy(Step *step) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*driver_, context_);
  const auto found = std::find_if(steps_.begin(), steps_.end(),
                                  [&](const std::unique_ptr<Step> &owned) { return owned.get() == step; });
  if (found == steps_.end())
    return;
  driver_->ctxSynchronize.raw();
  if (managed_ && step->isManaged()) {
    (void)step->managed_->waitUntilIdle(); // a drop gives advice anew
    takeAdviceBack(*step, step->plan_.lowered);
  }
  (*found)->letGo();
  steps_.erase(found);
  if (lastReplay_.step == step)
    lastReplay_.residence = nullptr;
  if (beforeCapture_ == step)
    beforeCapture_ = nullptr;
  if (lastInForce_ == step)
    lastInForce_ = nullptr;
}

Expected<const Compiler *> Session::compiler() {
  if (!compiler_) {
    const Expected<Compiler> opened = Compiler::open(options_.compilerLibrary);
    if (!opened)
      return tl::unexpected<Error>(opened.error());
    compiler_ = *opened;
  }
  return &*compiler_;
}

Expected<const FillKernel *> Session::fillKernel() {
  if (!fillKernel_) {
    Expected<std::unique_ptr<FillKernel>> loaded = FillKernel::load(*driver_);
    if (!loaded)
      return tl::unexpected<Error>(loaded.error());
    fillKernel_ = std::move(*loaded);
  }
  return fillKernel_.get();
}

nlohmann::ordered_json Session::linkReport() const {
  const auto json = [](const LinkSpeed &speed) -> nlohmann::ordered_json {
    return {{"up_bytes_per_second", speed.up},
            {"down_bytes_per_second", speed.down},
            {"both_bytes_per_second", speed.both}};
  };
  if (!managed_)
    return json(link_);
  if (!managedLink_)
    return nullptr;
  nlohmann::ordered_json link = json(managedLink_->typical);
  link["best_up_bytes_per_second"] = managedLink_->best.up;
  link["best_down_bytes_per_second"] = managedLink_->best.down;
  link["up_overhead_s"] = managedLink_->upOverheadUs / usPerSecond;
  link["down_overhead_s"] = managedLink_->downOverheadUs / usPerSecond;
  link["request_s"] = managedLink_->requestUs / usPerSecond;
  link["empty_bytes_per_second"] = managedLink_->emptyBytesPerSecond;
  link["measured_bytes"] = managedLink_->bytes;
  link["context_bytes"] = laneContexts_->deviceBytes();
  return link;
}

Expected<const ManagedLink *> Session::managedLink() {
  if (!managedLink_) {
    if (!laneContexts_) {
      const std::uint64_t mostOnDevice = std::min(frames_->budgetFrames() * pageBytes, arena_->bytes());
      laneContexts_ = LaneContexts::create(*driver_, options_.device, context_, mostOnDevice, contextsForEvictions);
      deviceFreeBytes_ -= std::min(deviceFreeBytes_, laneContexts_->deviceBytes());
      if (laneContexts_->ownContexts() < contextsForEvictions)
        notes_.push_back(fmt::format("the agent has {} contexts of its own in place of {}: evictions are slower",
                                     laneContexts_->ownContexts(), contextsForEvictions));
    }
    const Expected<ManagedLink> measured = measureArenaLink();
    if (!measured)
      return tl::unexpected<Error>(measured.error());
    managedLink_ = *measured;
    if (measured->bytes == 0)
      notes_.push_back("the arena has no room to measure the link in: plans count on the figures of another machine");
  }
  return &*managedLink_;
}

Expected<ManagedLink> Session::measureArenaLink() {
  return measureManagedLink(*driver_, options_.device, *addresses_, frames_->budgetFrames() * pageBytes,
                            *laneContexts_);
}

Expected<bool> Session::managedLinkWasDisturbed() {
  if (std::exchange(linkMeasuredAgain_, true) || managedLink_->bytes == 0)
    return false;
  const Expected<ManagedLink> again = measureArenaLink();
  if (!again)
    return tl::unexpected<Error>(again.error());
  const ManagedLink first = *managedLink_;
  if (again->bytes == 0 || !wasDisturbed(first, *again))
    return false;
  managedLink_ = together(first, *again);
  notes_.push_back(fmt::format("something was in the way when the link was first measured: {:.1f} GB/s up and {:.1f} "
                               "down, after planning {:.1f} and {:.1f}; planned again with the faster figures",
                               first.typical.up / 1e9, first.typical.down / 1e9, again->typical.up / 1e9,
                               again->typical.down / 1e9));
  return true;
}

} // namespace pumpgraph::runtime
