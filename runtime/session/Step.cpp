// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/Step.h"

#include "pumpgraph/graph/PrintableJson.h"
#include "runtime/messages/NvtxRange.h"
#include "runtime/session/MeasuredTimes.h"
#include "runtime/session/Replanner.h"
#include "runtime/session/Rewriting.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>

namespace pumpgraph::runtime {

std::vector<BlockId> CompiledPlan::blocksOf(const CapturedStep &step) const {
  std::vector<BlockId> blocks = step.blocks;
  for (const std::shared_ptr<const ReservedBlock> &block : continuations)
    blocks.push_back(block->id());
  return blocks;
}

bool CompiledPlan::hasOperations() const {
  return std::any_of(lowered.nodes.begin(), lowered.nodes.end(),
                     [](const Node &node) { return isOperation(node.kind); });
}

double CompiledPlan::predictedUs() const {
  if (!report)
    return 0;
  const auto predicted = report->find("predicted_s");
  return predicted != report->end() && predicted->is_number() ? predicted->get<double>() * usPerSecond : 0;
}

double CompiledPlan::boundUs() const {
  if (!report)
    return 0;
  const auto hosted = report->find("hosted_bytes"); // where some are, other plans may do without
  const bool isForAll = hosted != report->end() && *hosted == 0;
  const auto bound = report->find(isForAll ? "plan_bound_s" : "bound_s");
  return bound != report->end() && bound->is_number() ? bound->get<double>() * usPerSecond : 0;
}

Step::Step(Session &session, CUgraph graph) : session_(session), graph_(graph) {}

Step::~Step() {
  const Driver &driver = *session_.driver_;
  replanner_.reset(); // its clocks are in the graph
  if (edits_)
    edits_->commit(); // the caller's graph stays as it is
  if (exec_)
    driver.graphExecDestroy.raw(exec_);
  if (original_)
    driver.graphDestroy.raw(original_);
  if (ownsGraph_ && graph_)
    driver.graphDestroy.raw(graph_);
}

Status Step::keepOriginal() {
  const Driver &driver = *session_.driver_;
  CUgraph copy = nullptr;
  PUMPGRAPH_TRY(driver.graphClone(&copy, graph_));
  std::vector<CUgraphNode> nodes = captured_.nodes;
  for (CUgraphNode &node : nodes)
    if (const Status found = driver.graphNodeFindInClone(&node, node, copy); !found) {
      driver.graphDestroy.raw(copy);
      return found;
    }
  original_ = copy;
  originalNodes_ = std::move(nodes);
  return {};
}

Status Step::instantiate() {
  if (exec_)
    return {};
  PUMPGRAPH_TRY_WHILE(session_.driver_->graphInstantiate(&exec_, graph_, 0), "instantiating \"{}\"",
                      captured_.description.name);
  return {};
}

void Step::graphIsChanging() {
  graphHasChanged_ = true;
  if (exec_)
    session_.driver_->graphExecDestroy.raw(std::exchange(exec_, nullptr));
}

Status Step::runOnce(CUgraph graph, const std::string &which) const {
  const Driver &driver = *session_.driver_;
  CUgraphExec exec = nullptr;
  PUMPGRAPH_TRY_WHILE(driver.graphInstantiate(&exec, graph, 0), "instantiating the {}", which);
  Status done = driver.graphLaunch(exec, session_.stream_);
  if (done)
    done = driver.streamSynchronize(session_.stream_);
  driver.graphExecDestroy.raw(exec);
  PUMPGRAPH_TRY_WHILE(done, "running the {}", which);
  return {};
}

Status Step::replay(CUstream stream) {
  const NvtxRange range("pumpgraph replay");
  if (managed_)
    managed_->waitForRoom(); // without the lock, for others want it meanwhile
  const std::lock_guard lock(session_.mutex_);
  const ContextScope scope(*session_.driver_, session_.context_);
  PUMPGRAPH_TRY(session_.settle(*this, "replayed"));
  session_.lookAtBudgetFor(*this);
  PUMPGRAPH_TRY(session_.putInForce(*this));
  fitToBudget();
  goOnReplanning(stream);
  PUMPGRAPH_TRY(checkMemory());
  PUMPGRAPH_TRY(instantiate());
  PUMPGRAPH_TRY_WHILE(followSharers(stream), "replaying \"{}\"", captured_.description.name);
  if (managed_)
    managed_->wake();
  PUMPGRAPH_TRY_WHILE(session_.driver_->graphLaunch(exec_, stream), "replaying \"{}\"", captured_.description.name);
  if (replanner_)
    PUMPGRAPH_TRY_WHILE(replanner_->afterLaunch(stream), "timing \"{}\"", captured_.description.name);
  return leadSharers(stream);
}

std::vector<Step *> Step::sharers() const {
  std::vector<Step *> sharers;
  for (const std::unique_ptr<Step> &other : session_.steps_)
    if (rewritten() && other.get() != this && other->residence_ == residence_)
      sharers.push_back(other.get());
  return sharers;
}

Status Step::followSharers(CUstream stream) {
  const Session::LastReplay &last = session_.lastReplay_;
  // The driver orders launches of one graph itself; a step left as captured has no residence, and nobody shares it.
  if (!last.residence || last.residence != residence_.get() || last.step == this)
    return {};
  return session_.driver_->streamWaitEvent(stream, last.end, 0);
}

Status Step::leadSharers(CUstream stream) {
  Session::LastReplay &last = session_.lastReplay_;
  if (sharers().empty())
    return {};
  if (!last.end)
    PUMPGRAPH_TRY_WHILE(session_.driver_->eventCreate(&last.end, CU_EVENT_DISABLE_TIMING), "ordering replays");
  PUMPGRAPH_TRY_WHILE(session_.driver_->eventRecord(last.end, stream), "ordering replays");
  last.residence = residence_.get();
  last.step = this;
  return {};
}

bool Step::movesAnything() const {
  const Description &lowered = plan_.lowered;
  const bool hosts = std::any_of(lowered.buffers.begin(), lowered.buffers.end(),
                                 [](const Buffer &buffer) { return !buffer.hosted.empty(); });
  if (managed_)
    return hosts || managed_->movesAnything();
  return rewritten() && (hosts || std::any_of(lowered.nodes.begin(), lowered.nodes.end(),
                                              [](const Node &node) { return isCopy(node.kind); }));
}

Status Step::prepareReplay(CUstream stream, std::span<const pumpgraph_copy> copies) {
  if (managed_)
    managed_->waitForRoom();
  const std::lock_guard lock(session_.mutex_);
  const ContextScope scope(*session_.driver_, session_.context_);
  PUMPGRAPH_TRY(session_.settle(*this, "replayed"));
  PUMPGRAPH_TRY(session_.putInForce(*this));
  if (managed_)
    managed_->wake();
  PUMPGRAPH_TRY(checkMemory());
  for (const pumpgraph_copy &copy : copies)
    PUMPGRAPH_TRY_WHILE(session_.driver_->memcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(copy.destination),
                                                          reinterpret_cast<CUdeviceptr>(copy.source), copy.bytes,
                                                          stream),
                        "copying {} bytes from {} to {} before a replay of \"{}\"", copy.bytes, copy.source,
                        copy.destination, captured_.description.name);
  return {};
}

Status Step::checkMemory() const {
  if ((!rewritten() || edits_) && !session_.isLost(captured_.blocks))
    return {};
  return fail(PUMPGRAPH_INTERNAL, "\"{}\" has lost its memory in an earlier failure; destroy it and capture anew",
              captured_.description.name);
}

std::uint64_t Step::otherFrames() const {
  const Heap &heap = *session_.heap_;
  std::uint64_t frames = session_.frames_->created() - session_.frames_->freeFrames();
  if (residence_ && residence_->installed())
    frames -= residence_->frameCount();
  std::set<BlockId> moving = session_.movableBlocks();
  moving.insert(captured_.blocks.begin(), captured_.blocks.end());
  for (const BlockId id : moving)
    if (heap.block(id).backing == Backing::Device)
      frames -= heap.block(id).pages;
  return frames;
}

void Step::warn(const std::string &text) {
  session_.messages_.add(Level::Warning, fmt::format("step \"{}\": {}", captured_.description.name, text));
  captured_.warnings.push_back(text);
}

void Step::beginPlan(std::string costs, std::string why) {
  plans_.push_back({std::move(costs), std::move(why), plan_.predictedUs(), std::nullopt, std::nullopt});
}

void Step::letGo() {
  Heap &heap = *session_.heap_;
  const std::vector<Step *> others = sharers();
  // What cannot be moved back stays where it is until the session ends; its blocks are not released then.
  if (session_.isLost(captured_.blocks) ||
      (residence_ && !residence_->remove(others.empty() ? Keep::Allocations : Keep::Values))) {
    session_.lostBlocks_.insert(captured_.blocks.begin(), captured_.blocks.end());
    return;
  }
  if (!others.empty()) {
    const std::vector<BlockId> own = plan_.blocksOf(captured_);
    std::set<BlockId> unused(own.begin(), own.end());
    for (const Step *other : others) {
      for (const BlockId block : other->captured_.blocks)
        unused.erase(block);
      if (other->replanner_)
        other->replanner_->staysWithPlan();
    }
    residence_->forget(unused);
  }
  for (const std::vector<BlockId> *blocks : {&captured_.blocks, &captured_.besides})
    for (const BlockId block : *blocks)
      heap.release(heap.block(block));
}

Status Step::readValue(BufferIndex buffer, char *target) {
  PUMPGRAPH_TRY(session_.checkHasValue(captured_.blocks[buffer]));
  if (residence_ && residence_->installed())
    return residence_->readValue(captured_.blocks[buffer], target);
  const Buffer &described = captured_.description.buffers[buffer];
  PUMPGRAPH_TRY_WHILE(session_.driver_->memcpyDtoHAsync(target, described.address, described.size, session_.stream_),
                      "reading \"{}\"", described.name);
  PUMPGRAPH_TRY_WHILE(session_.driver_->streamSynchronize(session_.stream_), "reading \"{}\"", described.name);
  return {};
}

Status Step::writeValue(BufferIndex buffer, const char *source) {
  PUMPGRAPH_TRY(session_.checkHasValue(captured_.blocks[buffer]));
  if (residence_ && residence_->installed())
    return residence_->writeValue(captured_.blocks[buffer], source);
  const Buffer &described = captured_.description.buffers[buffer];
  PUMPGRAPH_TRY_WHILE(session_.driver_->memcpyHtoDAsync(described.address, source, described.size, session_.stream_),
                      "writing \"{}\"", described.name);
  PUMPGRAPH_TRY_WHILE(session_.driver_->streamSynchronize(session_.stream_), "writing \"{}\"", described.name);
  return {};
}

void Step::writeReport() {
  using Json = nlohmann::ordered_json;
  report_ = std::make_shared<Json>(plan_.report && plan_.report->is_object() ? *plan_.report : Json::object());
  Json &report = *report_;
  if (report.empty()) {
    report["name"] = captured_.description.name;
    report["nodes"] = captured_.description.nodes.size();
    report["buffers"] = captured_.description.buffers.size();
  }
  const std::vector<Node> &nodes = plan_.lowered.nodes;
  const auto repetitions =
      std::count_if(nodes.begin(), nodes.end(), [](const Node &node) { return node.kind == NodeKind::Rematerialize; });
  std::vector<std::string> notes = session_.notes_;
  notes.insert(notes.end(), captured_.notes.begin(), captured_.notes.end());
  Json runtime = {{"backend", isManaged()   ? "managed"
                              : rewritten() ? "virtual"
                                            : "as captured"},
                  {"backend_why", backendWhy_},
                  {"left_as_captured", rewritten() || isManaged() ? Json(nullptr) : Json(reason_)},
                  {"replans_by_itself", replanner_ != nullptr},
                  {"repetitions", repetitions},
                  {"capture_ms", times_.captureMs},
                  {"lift_ms", times_.liftMs},
                  {"scan_ms", times_.scanMs},
                  {"calibrate_ms", times_.calibrateMs},
                  {"hosted_ms", times_.hostedMs},
                  {"trials_ms", times_.trialsMs},
                  {"plan_ms", times_.planMs},
                  {"pinned_ms", times_.pinnedMs},
                  {"map_ms", times_.mapMs},
                  {"lower_ms", times_.lowerMs},
                  {"check_ms", times_.checkMs},
                  {"budget_bytes", session_.frames_->budgetFrames() * pageBytes},
                  {"device_bytes", session_.frames_->created() * pageBytes},
                  {"other_device_bytes", plan_.otherFrames * pageBytes},
                  {"host_backed_bytes", session_.host_->backedBytes()},
                  {"pinned_bytes", session_.host_->pinnedBytes()},
                  {"link", session_.linkReport()},
                  {"notes", std::move(notes)},
                  {"warnings", captured_.warnings}};
  report["runtime"] = std::move(runtime);
  timesAreTold_ = false;
}

/// Not when times are measured: bounds take their time, and nobody may ask.
void Step::tellTimes() {
  using Json = nlohmann::ordered_json;
  Json &runtime = (*report_)["runtime"];
  if (plans_.empty()) {
    runtime["costs"] = nullptr;
    return;
  }
  runtime["costs"] = plan_.savedTimes != 0 ? "saved" : "static";
  if (!rewritten() || !areMeasured(captured_.description))
    return;
  if (!hasTimesOf(plan_.lowered, captured_.description)) {
    const Expected<const Compiler *> compiler = session_.compiler();
    const Expected<Json> figures =
        compiler ? Rewriting(*this, **compiler).retimedFigures() : tl::unexpected<Error>(compiler.error());
    if (!figures) {
      runtime["notes"].push_back("the step times are not by measured node times: " + figures.error().message);
      return;
    }
    report_->update(*figures);
  }
  (*report_)["runtime"]["costs"] = "measured";
}

std::string Step::report() {
  const std::lock_guard lock(session_.mutex_);
  using Json = nlohmann::ordered_json;
  if (!std::exchange(timesAreTold_, true))
    tellTimes();
  const auto seconds = [](const std::optional<double> &us) { return us ? Json(*us / usPerSecond) : Json(nullptr); };
  Json plans = Json::array();
  for (const PlanRecord &plan : plans_)
    plans.push_back({{"costs", plan.costs},
                     {"why", plan.why},
                     {"predicted_s", plan.predictedUs / usPerSecond},
                     {"measured_s", seconds(plan.measuredUs)},
                     {"predicted_again_s", seconds(plan.predictedAgainUs)}});
  Json &runtime = (*report_)["runtime"];
  runtime["plans"] = std::move(plans);
  std::string boundary;
  for (const Step *other : sharers())
    boundary += (boundary.empty() ? "shared with " : ", ") + other->captured_.description.name;
  runtime["boundary"] = rewritten() ? Json(boundary.empty() ? "own" : boundary) : Json(nullptr);
  if (!plannedAgain_.empty())
    runtime["planned_again"] = plannedAgain_;
  if (managed_)
    runtime["agent"] = managed_->report();
  if (observation_.runs != 0)
    runtime["observation"] = observation_.report(captured_.description);
  runtime["exchanges"] = exchanges_;
  runtime["exchange_ms"] = exchangeMs_;
  return dumpPrintable(*report_, 2);
}

static Status writeFile(const std::string &path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file)
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "{} cannot be written", path);
  return {};
}

Status Step::save(const std::string &path) {
  const std::lock_guard lock(session_.mutex_);
  const Expected<const Compiler *> compiler = session_.compiler();
  if (!compiler)
    return inContext(compiler.error(), "saving a step");
  Description own = captured_.description;
  own.buffers.resize(own.buffers.size() - bystanders_);
  const DescriptionView view(own);
  char *text = (*compiler)->print(view.get(), session_.deviceName_.c_str());
  if (!text)
    return fail(PUMPGRAPH_INTERNAL, "the compiler library cannot print \"{}\"", captured_.description.name);
  const Status written = writeFile(path, text);
  (*compiler)->freeString(text);
  return written;
}

Status Step::memorySnapshot(const std::string &path) {
  const std::lock_guard lock(session_.mutex_);
  if (!rewritten() && !isManaged())
    return fail(PUMPGRAPH_INVALID_ARGUMENT,
                "\"{}\" is left as captured, so that all of its memory is on the device at all times: {}",
                captured_.description.name, reason_);
  const Expected<const Compiler *> compiler = session_.compiler();
  if (!compiler)
    return inContext(compiler.error(), "a snapshot of a step's memory");
  const Expected<std::string> snapshot = Rewriting(*this, **compiler).memoryViz();
  return snapshot ? writeFile(path, *snapshot) : Status(tl::unexpected<Error>(snapshot.error()));
}

} // namespace pumpgraph::runtime
