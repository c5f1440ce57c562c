// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/Step.h"

#include "runtime/measure/Measuring.h"
#include "runtime/measure/Observe.h"
#include "runtime/measure/Validate.h"
#include "runtime/messages/NvtxRange.h"
#include "runtime/session/Replanner.h"
#include "runtime/session/Report.h"
#include "runtime/state/Budget.h"
#include "runtime/state/Exchange.h"
#include "runtime/state/Values.h"

#include <chrono>
#include <fstream>
#include <utility>

namespace pumpgraph::runtime {

static Status followSharers(StepState &step, CUstream stream) {
  const LastReplay &last = step.session.lastReplay;
  // The driver orders launches of one graph itself; a step left as captured has no residence, and nobody shares it.
  if (!last.residence || last.residence != step.memory.residence.get() || last.step == &step)
    return {};
  return step.session.driver->streamWaitEvent(stream, last.end, 0);
}

static Status leadSharers(StepState &step, CUstream stream) {
  LastReplay &last = step.session.lastReplay;
  if (sharers(step).empty())
    return {};
  if (!last.end)
    PUMPGRAPH_TRY_WHILE(step.session.driver->eventCreate(&last.end, CU_EVENT_DISABLE_TIMING), "ordering replays");
  PUMPGRAPH_TRY_WHILE(step.session.driver->eventRecord(last.end, stream), "ordering replays");
  last.residence = step.memory.residence.get();
  last.step = &step;
  return {};
}

static void lookAtBudgetFor(StepState &step) {
  SessionState &session = step.session;
  if (!session.options.processMemory || std::chrono::steady_clock::now() < session.budget.nextLook)
    return;
  const Expected<BudgetState> state = lookAtBudget(session);
  if (state && state->message.empty())
    return;
  warn(step, state ? state->message : state.error().message);
  writeReport(step);
}

static Status writeFile(const std::string &path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "{} cannot be written", path);
  return {};
}

/// What every call of PumpGraph's own runs begins with: the step's plan is in force, and its graph has no clocks.
static Status prepareOwnRuns(StepState &step, const char *purpose) {
  PUMPGRAPH_TRY(settle(step, purpose));
  PUMPGRAPH_TRY(runtime::putInForce(step));
  PUMPGRAPH_TRY(checkMemory(step));
  return stopReplanning(step);
}

const Description &Step::captured() const {
  return state_.captured.description;
}

bool Step::rewritten() const {
  return state_.isRewritten();
}

bool Step::isManaged() const {
  return state_.isManaged();
}

bool Step::movesAnything() const {
  return runtime::movesAnything(state_);
}

Status Step::replay(CUstream stream) {
  StepState &step = state_;
  const NvtxRange range("pumpgraph replay");
  if (step.memory.managed)
    step.memory.managed->waitForRoom(); // without the lock, for others want it meanwhile
  const Entered entered(step.session);
  PUMPGRAPH_TRY(settle(step, "replayed"));
  lookAtBudgetFor(step);
  PUMPGRAPH_TRY(runtime::putInForce(step));
  fitToBudget(step);
  goOnReplanning(step, stream);
  PUMPGRAPH_TRY(checkMemory(step));
  PUMPGRAPH_TRY(instantiate(step));
  PUMPGRAPH_TRY_WHILE(followSharers(step, stream), "replaying \"{}\"", step.name());
  if (step.memory.managed)
    step.memory.managed->wake();
  PUMPGRAPH_TRY_WHILE(step.session.driver->graphLaunch(step.graph.exec, stream), "replaying \"{}\"", step.name());
  if (step.planning.replanner)
    PUMPGRAPH_TRY_WHILE(step.planning.replanner->afterLaunch(stream), "timing \"{}\"", step.name());
  return leadSharers(step, stream);
}

Status Step::prepareReplay(CUstream stream, std::span<const pumpgraph_copy> copies) {
  StepState &step = state_;
  if (step.memory.managed)
    step.memory.managed->waitForRoom();
  const Entered entered(step.session);
  PUMPGRAPH_TRY(settle(step, "replayed"));
  PUMPGRAPH_TRY(runtime::putInForce(step));
  if (step.memory.managed)
    step.memory.managed->wake();
  PUMPGRAPH_TRY(checkMemory(step));
  for (const pumpgraph_copy &copy : copies)
    PUMPGRAPH_TRY_WHILE(step.session.driver->memcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(copy.destination),
                                                             reinterpret_cast<CUdeviceptr>(copy.source), copy.bytes,
                                                             stream),
                        "copying {} bytes from {} to {} before a replay of \"{}\"", copy.bytes, copy.source,
                        copy.destination, step.name());
  return {};
}

std::string Step::report() {
  const std::lock_guard lock(state_.session.mutex);
  return reportOf(state_);
}

Status Step::save(const std::string &path) {
  StepState &step = state_;
  const std::lock_guard lock(step.session.mutex);
  const Expected<const Compiler *> compiler = compilerOf(step.session);
  if (!compiler)
    return inContext(compiler.error(), "saving a step");
  Description own = step.captured.description;
  own.buffers.resize(own.buffers.size() - step.bystanders);
  const DescriptionView view(own);
  char *text = (*compiler)->print(view.get(), step.session.device.name.c_str());
  if (!text)
    return fail(PUMPGRAPH_INTERNAL, "the compiler library cannot print \"{}\"", step.name());
  const Status written = writeFile(path, text);
  (*compiler)->freeString(text);
  return written;
}

Status Step::memorySnapshot(const std::string &path) {
  StepState &step = state_;
  const std::lock_guard lock(step.session.mutex);
  if (!step.isRewritten() && !step.isManaged())
    return fail(PUMPGRAPH_INVALID_ARGUMENT,
                "\"{}\" is left as captured, so that all of its memory is on the device at all times: {}", step.name(),
                step.report.reason);
  const Expected<const Compiler *> compiler = compilerOf(step.session);
  if (!compiler)
    return inContext(compiler.error(), "a snapshot of a step's memory");
  const Expected<std::string> snapshot = Rewriting(step, **compiler).memoryViz();
  return snapshot ? writeFile(path, *snapshot) : Status(tl::unexpected<Error>(snapshot.error()));
}

Expected<Measurement> Step::measure(int repeats) {
  StepState &step = state_;
  const Entered entered(step.session);
  if (repeats < 1)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "{} repeats", repeats);
  if (runtime::movesAnything(step))
    return fail(PUMPGRAPH_INVALID_ARGUMENT,
                "\"{}\" is rewritten; measure it in a session with room for all of it, adopted as captured, or plan it "
                "again",
                step.name());
  PUMPGRAPH_TRY(prepareOwnRuns(step, "measured"));
  return runtime::measure(step, repeats);
}

Expected<Validation> Step::validate() {
  StepState &step = state_;
  const Entered entered(step.session);
  if (!step.isRewritten() && !step.isManaged()) // there is nothing to compare with
    return Validation{};
  if (step.isManaged() && !step.graph.original)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be validated: the driver does not copy such a graph",
                step.name());
  PUMPGRAPH_TRY(prepareOwnRuns(step, "validated"));
  return runtime::validate(step);
}

Expected<Observation> Step::observe(const std::vector<CUdeviceptr> &values) {
  StepState &step = state_;
  const Entered entered(step.session);
  if (step.isManaged() && !step.graph.original)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be observed: the driver does not copy such a graph",
                step.name());
  if (step.session.memory.heap->capturing())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be observed during a capture", step.name());
  if (!step.session.values.maps.empty()) // whatever the step is like: it is about to be poisoned
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" cannot be observed while a buffer is mapped", step.name());
  PUMPGRAPH_TRY(prepareOwnRuns(step, "observed"));
  return runtime::observe(step, values);
}

Expected<LaunchState> Step::beforeLaunch(CUstream stream) {
  StepState &step = state_;
  const Entered entered(step.session);
  PUMPGRAPH_TRY(settle(step, "replayed"));
  PUMPGRAPH_TRY(runtime::putInForce(step));
  fitToBudget(step);
  goOnReplanning(step, stream);
  PUMPGRAPH_TRY(checkMemory(step));
  return LaunchState{std::exchange(step.graph.hasChanged, false), step.planning.replanner != nullptr};
}

Status Step::afterLaunch(CUstream stream) {
  StepState &step = state_;
  const Entered entered(step.session);
  if (step.planning.replanner)
    PUMPGRAPH_TRY_WHILE(step.planning.replanner->afterLaunch(stream), "timing \"{}\"", step.name());
  return {};
}

Expected<Replanning> Step::replan() {
  StepState &step = state_;
  const Entered entered(step.session);
  if (step.isManaged())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" is on managed memory, where steps are not planned again",
                step.name());
  if (!step.isRewritten())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" is left as captured ({}): there is no plan to improve", step.name(),
                step.report.reason);
  PUMPGRAPH_TRY(prepareOwnRuns(step, "planned again"));
  return runtime::replan(step);
}

} // namespace pumpgraph::runtime
