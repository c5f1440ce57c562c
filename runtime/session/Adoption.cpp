// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/Adoption.h"

#include "runtime/capture/FindHiddenPointers.h"

#include <algorithm>

namespace pumpgraph::runtime {

Expected<std::unique_ptr<Step>> Adoption::run() {
  step_ = std::make_unique<Step>(session_, graph_, AdoptOptions{}); // owns the graph only once all went well
  PUMPGRAPH_TRY(lift());
  PUMPGRAPH_TRY(describe());
  PUMPGRAPH_TRY(checkAgainstOtherSteps());
  if (const std::string reason = refusal(); !reason.empty()) {
    PUMPGRAPH_TRY(leaveAsCaptured(reason));
    return finish();
  }
  const Expected<const Compiler *> compiler = session_.compiler();
  if (!compiler) {
    PUMPGRAPH_TRY(leaveAsCaptured(compiler.error().message));
    return finish();
  }
  PUMPGRAPH_TRY(plan(**compiler));
  PUMPGRAPH_TRY(rewrite(**compiler));
  return finish();
}

Status Adoption::lift() {
  const Stopwatch watch;
  Expected<LiftedGraph> lifted = liftGraph(driver_, graph_, *session_.addresses_, session_.context_);
  if (!lifted)
    return tl::unexpected<Error>(lifted.error());
  lifted_ = std::move(*lifted);
  finder_.emplace(heap_, session_.rehearsal_ ? &*session_.rehearsal_ : nullptr, lifted_);
  step_->times_.captureMs = session_.captureMs_;
  step_->times_.liftMs = watch.milliseconds();
  return {};
}

Status Adoption::describe() {
  const Stopwatch watch;
  const CapturedStep asDeclared = describeStep(lifted_, heap_, *finder_, {});
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device before buffers are read");
  Expected<HiddenPointers> hidden =
      findHiddenPointers(driver_, lifted_, heap_, asDeclared.blocks, *session_.staging_, session_.stream_);
  if (!hidden)
    return tl::unexpected<Error>(hidden.error());
  std::set<BlockId> &staying = hidden->pointedAt;
  for (BufferIndex buffer = 0; buffer < asDeclared.blocks.size(); ++buffer) {
    if (heap_.block(asDeclared.blocks[buffer]).retainers == 0)
      continue;
    staying.insert(asDeclared.blocks[buffer]);
    if (asDeclared.description.buffers[buffer].isPrivate)
      hidden->notes.push_back(
          fmt::format("another step of the session uses \"{}\", which therefore stays on the device",
                      asDeclared.description.buffers[buffer].name));
  }
  CapturedStep &captured = step_->captured_;
  captured = staying.empty() ? asDeclared : describeStep(lifted_, heap_, *finder_, staying);
  captured.description.name = options_.name;
  captured.notes.insert(captured.notes.end(), hidden->notes.begin(), hidden->notes.end());
  if (session_.rehearsal_ && !finder_->comparedWithRehearsal())
    captured.notes.push_back("the rehearsal's graph is another one: every word that looks like an address is taken "
                             "for one");
  step_->times_.scanMs = watch.milliseconds();
  return {};
}

std::string Adoption::refusal() const {
  if (options_.leaveAsCaptured)
    return "asked for";
  const std::vector<std::string> &refusals = step_->captured_.refusals;
  if (refusals.empty())
    return "";
  return refusals.size() == 1 ? refusals.front() : fmt::format("{} (and {} more)", refusals[0], refusals.size() - 1);
}

Status Adoption::checkAgainstOtherSteps() const {
  const Step *other = session_.rewrittenStep();
  if (!other)
    return {};
  const std::string &name = other->captured_.description.name;
  if (refusal().empty())
    return fail(PUMPGRAPH_INVALID_ARGUMENT,
                "this session already holds the rewritten step \"{}\"; destroy it first, use another session, or adopt "
                "this one as captured",
                name);
  for (BufferIndex buffer = 0; buffer < step_->captured_.blocks.size(); ++buffer)
    if (!other->residence_->isWhollyResident(step_->captured_.blocks[buffer]))
      return fail(PUMPGRAPH_INVALID_ARGUMENT,
                  "\"{}\" uses \"{}\", which the rewritten step \"{}\" keeps in host memory between replays",
                  options_.name, step_->captured_.description.buffers[buffer].name, name);
  return {};
}

std::uint64_t Adoption::otherFrames() const {
  std::uint64_t frames = session_.frames_->created() - session_.frames_->freeFrames();
  for (const BlockId id : step_->captured_.blocks)
    if (heap_.block(id).backing == Backing::Device)
      frames -= heap_.block(id).pages;
  return frames;
}

Status Adoption::makeRoom() {
  std::set<BlockId> used(step_->captured_.blocks.begin(), step_->captured_.blocks.end());
  used.insert(step_->captured_.besides.begin(), step_->captured_.besides.end());
  heap_.recycleUnused(used);
  PUMPGRAPH_TRY(heap_.flushCache());
  otherFrames_ = otherFrames();
  if (otherFrames_ >= session_.frames_->budgetFrames())
    return fail(PUMPGRAPH_UNPLANNABLE, "nothing is left for \"{}\": {}", options_.name, othersText());
  return {};
}

std::string Adoption::othersText() const {
  return fmt::format("{} of the budget of {} hold allocations that the step does not touch",
                     bytesText(otherFrames_ * pageBytes), bytesText(session_.frames_->budgetFrames() * pageBytes));
}

pumpgraph_compiler_options Adoption::compilerOptions() const {
  pumpgraph_compiler_options options{};
  options.struct_size = sizeof options;
  options.budget_bytes =
      session_.options_.unlimited ? 0 : (session_.frames_->budgetFrames() - otherFrames_) * pageBytes;
  options.up_bytes_per_second = session_.link_.up;
  options.down_bytes_per_second = session_.link_.down;
  options.both_bytes_per_second = session_.link_.both;
  options.costs_ir = options_.costsIr.empty() ? nullptr : options_.costsIr.c_str();
  return options; // host memory is not limited here: pinning it says precisely how much is missing
}

Status Adoption::statusOf(pumpgraph_compiler_status compiled, const std::string &message) const {
  switch (compiled) {
  case PUMPGRAPH_COMPILED:
    return {};
  case PUMPGRAPH_COMPILER_UNPLANNABLE:
    return fail(PUMPGRAPH_UNPLANNABLE, "\"{}\" cannot be planned: {}{}", options_.name, message,
                otherFrames_ == 0 ? "" : fmt::format(" ({})", othersText()));
  case PUMPGRAPH_COMPILER_INVALID:
    return fail(options_.costsIr.empty() ? PUMPGRAPH_INTERNAL : PUMPGRAPH_INVALID_ARGUMENT,
                "the compiler library does not accept \"{}\": {}", options_.name, message);
  case PUMPGRAPH_COMPILER_NO_MEMORY:
    return fail(PUMPGRAPH_OUT_OF_HOST_MEMORY, "memory ran out while \"{}\" was planned", options_.name);
  case PUMPGRAPH_COMPILER_REFUSED:
    return fail(PUMPGRAPH_INTERNAL, "the checker refused the plan for \"{}\": {}", options_.name, message);
  }
  return fail(PUMPGRAPH_INTERNAL, "the compiler library answers {}", static_cast<int>(compiled));
}

Status Adoption::plan(const Compiler &compiler) {
  const Stopwatch watch;
  PUMPGRAPH_TRY(makeRoom());
  const DescriptionView view(step_->captured_.description);
  const pumpgraph_compiler_options options = compilerOptions();
  pumpgraph_compilation *compilation = nullptr;
  const pumpgraph_compiler_status compiled = compiler.compile(view.get(), &options, &compilation);
  const std::unique_ptr<pumpgraph_compilation, decltype(compiler.release)> owner(compilation, compiler.release);
  PUMPGRAPH_TRY(statusOf(compiled, compilation ? compiler.message(compilation) : "no message"));
  const pumpgraph_description *lowered = compiler.lowered(compilation);
  std::string problem = "there is none";
  if (!lowered || !fromC(*lowered, lowered_, problem))
    return fail(PUMPGRAPH_INTERNAL, "the compiler library's lowered step cannot be used: {}", problem);
  if (lowered_.buffers.size() != step_->captured_.blocks.size())
    return fail(PUMPGRAPH_INTERNAL, "the compiler library changed the number of buffers from {} to {}",
                step_->captured_.blocks.size(), lowered_.buffers.size());
  if (const char *report = compiler.reportJson(compilation))
    compilerReport_ = report;
  step_->times_.planMs = watch.milliseconds();
  return {};
}

Status Adoption::rewrite(const Compiler &compiler) {
  auto residence = std::make_unique<Residence>(session_.tools(), lowered_, step_->captured_.blocks);
  const Stopwatch pinning;
  PUMPGRAPH_TRY_WHILE(residence->pin(), "getting host memory for \"{}\"", options_.name);
  step_->times_.pinnedMs = pinning.milliseconds();
  PUMPGRAPH_TRY_WHILE(driver_.graphClone(&step_->original_, graph_), "keeping the graph as captured");
  const Stopwatch mapping;
  PUMPGRAPH_TRY_WHILE(residence->install(), "mapping the memory of \"{}\"", options_.name);
  step_->times_.mapMs = mapping.milliseconds();
  step_->residence_ = std::move(residence);

  GraphEditor editor(driver_, graph_, session_.context_);
  Status done = lowerAndCheck(editor, compiler);
  if (done)
    done = backResults();
  if (done) {
    editor.commit();
    return {};
  }
  // The graph is restored by the editor; its buffers get memory that is right without any copies.
  Error error = std::move(done).error();
  const Status removed = step_->residence_->remove(true);
  if (!removed)
    return inContext(std::move(error), removed.error().message);
  step_->residence_.reset();
  return tl::unexpected<Error>(std::move(error));
}

Status Adoption::lowerAndCheck(GraphEditor &editor, const Compiler &compiler) {
  const Stopwatch lowering;
  const CapturedStep &captured = step_->captured_;
  PUMPGRAPH_TRY_WHILE(lowerGraph(editor, lowered_, captured, lifted_, step_->residence_->pool()),
                      "rewriting the graph of \"{}\"", options_.name);
  step_->times_.lowerMs = lowering.milliseconds();

  const Stopwatch checking;
  const Expected<LiftedGraph> again = liftGraph(driver_, graph_, *session_.addresses_, session_.context_);
  if (!again)
    return inContext(again.error(), "lifting the rewritten graph");
  Expected<RewrittenStep> rewritten = describeRewritten(*again, captured, lowered_, *finder_, *step_->residence_);
  if (!rewritten)
    return tl::unexpected<Error>(rewritten.error());
  const Description annotated = withAnnotations(captured.description, lowered_);
  const DescriptionView after(rewritten->description), before(annotated);
  if (char *violation = compiler.check(after.get(), before.get())) {
    const std::string message = violation;
    compiler.freeString(violation);
    return fail(PUMPGRAPH_INTERNAL, "the checker refused the rewritten graph of \"{}\": {}", options_.name, message);
  }
  step_->rewritten_ = std::move(*rewritten);
  step_->times_.checkMs = checking.milliseconds();
  return {};
}

Status Adoption::backResults() {
  for (const BlockId id : step_->captured_.besides) {
    Block &block = heap_.block(id);
    if (!block.hasMemory())
      PUMPGRAPH_TRY_WHILE(heap_.back(block), "giving memory to \"{}\"", block.members.front().name);
  }
  return {};
}

Status Adoption::leaveAsCaptured(std::string reason) {
  const Stopwatch mapping;
  step_->reason_ = std::move(reason);
  otherFrames_ = otherFrames();
  for (BufferIndex buffer = 0; buffer < step_->captured_.blocks.size(); ++buffer) {
    Block &block = heap_.block(step_->captured_.blocks[buffer]);
    if (!block.hasMemory())
      PUMPGRAPH_TRY_WHILE(heap_.back(block), "giving memory to \"{}\"",
                          step_->captured_.description.buffers[buffer].name);
  }
  PUMPGRAPH_TRY(backResults());
  step_->times_.mapMs = mapping.milliseconds();
  return {};
}

Expected<std::unique_ptr<Step>> Adoption::finish() {
  for (const std::vector<BlockId> *blocks : {&step_->captured_.blocks, &step_->captured_.besides})
    for (const BlockId block : *blocks)
      heap_.retain(heap_.block(block));
  heap_.dropCapture();
  step_->ownsGraph_ = options_.ownsGraph;
  writeReport();
  return std::move(step_);
}

void Adoption::writeReport() {
  using Json = nlohmann::ordered_json;
  Json &report = step_->report_;
  if (!compilerReport_.empty())
    report = Json::parse(compilerReport_, nullptr, false);
  if (!report.is_object()) {
    report = Json::object();
    report["name"] = step_->captured_.description.name;
    report["nodes"] = step_->captured_.description.nodes.size();
    report["buffers"] = step_->captured_.description.buffers.size();
  }
  const AdoptionTimes &times = step_->times_;
  Json runtime = {{"backend", step_->rewritten() ? "virtual" : "as captured"},
                  {"left_as_captured", step_->rewritten() ? Json(nullptr) : Json(step_->reason_)},
                  {"capture_ms", times.captureMs},
                  {"lift_ms", times.liftMs},
                  {"scan_ms", times.scanMs},
                  {"plan_ms", times.planMs},
                  {"pinned_ms", times.pinnedMs},
                  {"map_ms", times.mapMs},
                  {"lower_ms", times.lowerMs},
                  {"check_ms", times.checkMs},
                  {"budget_bytes", session_.frames_->budgetFrames() * pageBytes},
                  {"device_bytes", session_.frames_->created() * pageBytes},
                  {"other_device_bytes", otherFrames_ * pageBytes},
                  {"host_backed_bytes", session_.host_->backedBytes()},
                  {"pinned_bytes", session_.host_->pinnedBytes()},
                  {"link",
                   {{"up_bytes_per_second", session_.link_.up},
                    {"down_bytes_per_second", session_.link_.down},
                    {"both_bytes_per_second", session_.link_.both}}},
                  {"notes", step_->captured_.notes}};
  report["runtime"] = std::move(runtime);
}

} // namespace pumpgraph::runtime
