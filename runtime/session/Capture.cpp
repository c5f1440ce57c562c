// SPDX-License-Identifier: Apache-2.0
// From a session's captures to its steps.
#include "runtime/messages/NvtxRange.h"
#include "runtime/session/Adoption.h"
#include "runtime/session/Replanner.h"
#include "runtime/session/Session.h"
#include "runtime/session/Step.h"
#include "runtime/state/Backend.h"
#include "runtime/state/Exchange.h"
#include "runtime/state/Values.h"

#include <algorithm>

namespace pumpgraph::runtime {

static Expected<CUgraph> graphOfCapture(const SessionState &session, CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  PUMPGRAPH_TRY_WHILE(session.driver->streamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr),
                      "asking for the capture");
  if (!session.memory.heap->capturing() || status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
    return fail(PUMPGRAPH_INVALID_ARGUMENT,
                "something can be said of nodes while the stream is captured for this session");
  return graph;
}

/// `add` is called with the declarations and the graph of the capture on `stream`.
template <typename Add> static Status declare(SessionState &session, CUstream stream, Add add) {
  const Entered entered(session);
  const Expected<CUgraph> graph = graphOfCapture(session, stream);
  return graph ? add(session.capture.declarations, *graph) : tl::unexpected<Error>(graph.error());
}

/// Memory freed inside a capture serves others without an order: see freeInOrder(). So what other streams have got to
/// do with it comes before. The stream of the capture may be capturing already.
static Status awaitUses(const SessionState &session) {
  const Driver &driver = *session.driver;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  PUMPGRAPH_TRY(driver.threadExchangeStreamCaptureMode(&mode));
  Status waited;
  for (const CUstream stream : session.memory.uses.streams()) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = nullptr;
    // Nothing can be asked of the legacy stream, nor waited for, while a stream is captured that waits for it.
    const CUresult asked = driver.streamGetCaptureInfo.raw(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr);
    if (waited && asked == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE)
      waited = driver.streamSynchronize(stream);
  }
  PUMPGRAPH_TRY(driver.threadExchangeStreamCaptureMode(&mode));
  return waited;
}

bool Session::isCapturing() const {
  return state_->memory.heap->capturing();
}

Status Session::captureBegin() {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  if (session.memory.heap->capturing())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "a capture is already running in this session");
  const ContextScope scope(*session.driver, session.device.context);
  session.memory.heap->graphsEnded(session.capture.otherGraphs.takeEnded());
  PUMPGRAPH_TRY_WHILE(awaitUses(session), "before a capture");
  // Captured copies need memory at the addresses they name.
  if (StepState *inForce = stepInForce(session)) {
    PUMPGRAPH_TRY_WHILE(takePlanBack(session), "before a capture");
    session.capture.inForceBefore = inForce;
  }
  PUMPGRAPH_TRY_WHILE(session.memory.paging->settle(), "before a capture");
  session.memory.heap->beginCapture(session.backend.isManaged && session.capture.rehearsal
                                        ? session.capture.rehearsal->allocations()
                                        : std::vector<RehearsedAllocation>());
  session.capture.declarations = {};
  session.capture.watch = {};
  session.progress.begin(Phase::Capturing, 2);
  session.progress.advance(session.capture.rehearsal ? 1 : 0);
  return {};
}

Status Session::captureEnd() {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  if (!session.memory.heap->capturing())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "no capture is running in this session");
  session.memory.heap->endCapture();
  session.progress.end();
  session.capture.copiesAreOfManaged = session.backend.isManaged;
  session.capture.milliseconds = session.capture.watch.milliseconds();
  return {};
}

Status Session::declareReads(CUstream stream, const std::vector<CUdeviceptr> &pointers) {
  return declare(*state_, stream, [&](NodeDeclarations &declarations, CUgraph graph) {
    return declarations.addReads(*state_->driver, graph, pointers);
  });
}

Status Session::declareAside(CUstream stream, const std::vector<CUdeviceptr> &pointers) {
  return declare(*state_, stream, [&](NodeDeclarations &declarations, CUgraph graph) {
    return declarations.addAsides(*state_->driver, graph, pointers);
  });
}

Status Session::declareExtents(CUstream stream, const std::vector<DeclaredExtent> &extents) {
  return declare(*state_, stream, [&](NodeDeclarations &declarations, CUgraph graph) -> Status {
    for (const DeclaredExtent &extent : extents) {
      const std::optional<Hit> hit = state_->memory.heap->find(extent.begin);
      if (!hit)
        continue;
      const std::uint64_t size = state_->memory.heap->member(*hit).size;
      const bool isInside = hit->offset >= 0 && static_cast<std::uint64_t>(hit->offset) < size;
      if (!isInside || extent.bytes == 0 || extent.bytes > size - static_cast<std::uint64_t>(hit->offset))
        return fail(PUMPGRAPH_INVALID_ARGUMENT,
                    "an extent of {} bytes at {} does not lie in its allocation of {} bytes", extent.bytes, hit->offset,
                    size);
    }
    return declarations.addExtents(*state_->driver, graph, extents);
  });
}

Status Session::declareKernelReads(std::string_view name, std::span<const std::uint32_t> parameters) {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  if (!session.capture.kernelReads.add(name, parameters))
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" is no name of a function", name);
  return {};
}

Status Session::declareWrites(CUstream stream, const std::optional<std::vector<CUdeviceptr>> &pointers) {
  return declare(*state_, stream, [&](NodeDeclarations &declarations, CUgraph graph) {
    return declarations.addWrites(*state_->driver, graph, pointers);
  });
}

Status Session::declareReach(CUstream stream, const NodeReach &reach) {
  return declare(*state_, stream, [&](NodeDeclarations &declarations, CUgraph graph) {
    return declarations.addReach(*state_->driver, graph, reach);
  });
}

Status Session::nameNodes(CUstream stream, std::string_view label) {
  return declare(*state_, stream, [&](NodeDeclarations &declarations, CUgraph graph) {
    return declarations.addLabel(*state_->driver, graph, label);
  });
}

Status Session::declareOperation(CUstream stream, OperationKind kind) {
  return declare(*state_, stream, [&](NodeDeclarations &declarations, CUgraph graph) {
    return declarations.addOperation(*state_->driver, graph, kind);
  });
}

Status Session::declareOperation(CUgraph graph, OperationKind kind) {
  SessionState &session = *state_;
  const Entered entered(session);
  return session.capture.declarations.addOperation(*session.driver, graph, kind);
}

Status Session::declareReach(CUgraph graph, const NodeReach &reach) {
  SessionState &session = *state_;
  const Entered entered(session);
  return session.capture.declarations.addReach(*session.driver, graph, reach);
}

Status Session::declareArithmetic(CUstream stream, double operations, ArithmeticKind kind) {
  return declare(*state_, stream, [&](NodeDeclarations &declarations, CUgraph graph) {
    return declarations.addArithmetic(*state_->driver, graph, state_->device.arithmetic.microseconds(operations, kind));
  });
}

Status Session::rehearse(CUgraph graph) {
  SessionState &session = *state_;
  const Entered entered(session);
  if (session.memory.heap->capturing() || session.memory.heap->capture() == 0)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "a rehearsal needs a graph whose capture has ended");
  const Expected<LiftedGraph> lifted =
      liftGraph(*session.driver, graph, *session.memory.addresses, session.device.context);
  if (!lifted)
    return inContext(lifted.error(), "reading the rehearsal");
  session.capture.rehearsal.emplace(*lifted, *session.memory.heap, session.capture.declarations);
  const std::uint64_t pages = session.memory.heap->capturedPages();
  session.memory.heap->dropCapture();
  const bool isUnseen = std::any_of(lifted->nodes.begin(), lifted->nodes.end(),
                                    [](const LiftedNode &node) { return !node.refusal.empty(); });
  if (!choosesByStep(session) || isUnseen == session.backend.isManaged)
    return {};
  if (isUnseen) {
    PUMPGRAPH_TRY(session.memory.heap->flushCache());
    PUMPGRAPH_TRY(session.memory.heap->narrowStandIns());
    if (session.memory.heap->hasFramesFor(pages) && !hasManagedStep(session))
      return {};
  }
  const Expected<std::string> obstacle = isUnseen ? moveToManaged(session) : moveToVirtual(session);
  return obstacle ? Status{} : tl::unexpected<Error>(obstacle.error()); // adoption says what is in the way
}

Expected<bool> Session::rehearsalMatches(CUgraph graph) {
  SessionState &session = *state_;
  const Entered entered(session);
  if (session.memory.heap->capturing() || !session.capture.rehearsal)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "a graph is compared after its capture with a rehearsal before it");
  const Expected<LiftedGraph> lifted =
      liftGraph(*session.driver, graph, *session.memory.addresses, session.device.context);
  if (!lifted)
    return inContext(lifted.error(), "comparing a graph with the rehearsal");
  return session.capture.rehearsal->isLike(*lifted);
}

Expected<Step *> Session::adopt(CUgraph graph, const AdoptOptions &options) {
  SessionState &session = *state_;
  const std::lock_guard lock(session.mutex);
  const NvtxRange range("pumpgraph adopt");
  const ContextScope scope(*session.driver, session.device.context);
  if (session.memory.heap->capturing())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "the capture has to end before its graph is adopted");
  StepState *before = stepInForce(session) ? stepInForce(session) : session.capture.inForceBefore;
  PUMPGRAPH_TRY_WHILE(takePlanBack(session), "adopting \"{}\"", options.name);
  Expected<std::unique_ptr<StepState>> step =
      Adoption(session, graph, options, before, before ? before : session.lastInForce).run();
  if (!step) {
    if (before)
      (void)putInForce(*before); // its next replay tries again
    return tl::unexpected<Error>(step.error());
  }
  session.capture.inForceBefore = nullptr;
  session.capture.rehearsal.reset();
  session.steps.push_back(std::move(*step));
  if (session.steps.back()->isRewritten())
    session.lastInForce = session.steps.back().get();
  return handles_.emplace_back(std::make_unique<Step>(*session.steps.back())).get();
}

Expected<CUgraph> Session::recordOnce(const Record &record) {
  SessionState &session = *state_;
  const NvtxRange range("pumpgraph capture");
  const ContextScope scope(*session.driver, session.device.context);
  PUMPGRAPH_TRY(captureBegin());
  // Thread-local: what other threads do with the driver meanwhile is their own business.
  const Status begun = session.driver->streamBeginCapture(session.device.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  const int result = begun ? record(session.device.stream) : 0;
  CUgraph graph = nullptr;
  Status ended;
  if (begun)
    ended = session.driver->streamEndCapture(session.device.stream, &graph);
  PUMPGRAPH_TRY(captureEnd());
  PUMPGRAPH_TRY_WHILE(begun, "starting the capture");
  if (result != 0) {
    if (graph)
      session.driver->graphDestroy.raw(graph);
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
  state_->driver->graphDestroy.raw(*first);
  PUMPGRAPH_TRY(rehearsed);
  const Expected<CUgraph> second = recordOnce(record);
  if (!second)
    return inContext(second.error(), "second capture");
  AdoptOptions owning = options;
  owning.ownsGraph = true;
  Expected<Step *> step = adopt(*second, owning);
  if (!step)
    state_->driver->graphDestroy.raw(*second);
  return step;
}

static void letGo(StepState &step) {
  Heap &heap = *step.session.memory.heap;
  const std::vector<StepState *> others = sharers(step);
  // What cannot be moved back stays where it is until the session ends; its blocks are not released then.
  if (isLost(step.session, step.captured.blocks) ||
      (step.memory.residence && !step.memory.residence->remove(others.empty() ? Keep::Allocations : Keep::Values))) {
    step.session.values.lost.insert(step.captured.blocks.begin(), step.captured.blocks.end());
    return;
  }
  if (!others.empty()) {
    const std::vector<BlockId> own = step.plan.blocksOf(step.captured);
    std::set<BlockId> unused(own.begin(), own.end());
    for (const StepState *other : others) {
      for (const BlockId block : other->captured.blocks)
        unused.erase(block);
      if (other->planning.replanner)
        other->planning.replanner->staysWithPlan();
    }
    step.memory.residence->forget(unused);
  }
  for (const std::vector<BlockId> *blocks : {&step.captured.blocks, &step.captured.besides})
    for (const BlockId block : *blocks)
      heap.release(heap.block(block));
}

void Session::destroy(Step *step) {
  SessionState &session = *state_;
  const Entered entered(session);
  const auto handle = std::find_if(handles_.begin(), handles_.end(),
                                   [&](const std::unique_ptr<Step> &owned) { return owned.get() == step; });
  if (handle == handles_.end())
    return;
  const auto found =
      std::find_if(session.steps.begin(), session.steps.end(),
                   [&](const std::unique_ptr<StepState> &owned) { return owned.get() == &step->state(); });
  handles_.erase(handle);
  session.driver->ctxSynchronize.raw();
  StepState &gone = **found;
  if (session.backend.isManaged && gone.isManaged()) {
    (void)gone.memory.managed->waitUntilIdle(); // a drop gives advice anew
    takeAdviceBack(gone, gone.plan.lowered);
  }
  letGo(gone);
  if (session.lastReplay.step == &gone)
    session.lastReplay.residence = nullptr;
  if (session.capture.inForceBefore == &gone)
    session.capture.inForceBefore = nullptr;
  if (session.lastInForce == &gone)
    session.lastInForce = nullptr;
  session.steps.erase(found);
}

} // namespace pumpgraph::runtime
