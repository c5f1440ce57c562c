// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/Rewriting.h"

#include "runtime/measure/MeasuredTimes.h"
#include "runtime/messages/NvtxRange.h"
#include "runtime/state/Backend.h"
#include "runtime/state/Exchange.h"
#include "runtime/state/Links.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace pumpgraph::runtime {

std::string othersText(std::uint64_t otherFrames, std::uint64_t budgetFrames) {
  return fmt::format("{} of the budget of {} hold allocations that the step does not touch",
                     bytesText(otherFrames * pageBytes), bytesText(budgetFrames * pageBytes));
}

Rewriting::Rewriting(StepState &step, const Compiler &compiler)
    : step_(step), session_(step.session), driver_(*step.session.driver), compiler_(compiler) {}

pumpgraph_compiler_options Rewriting::compilerOptions(std::uint64_t otherFrames, const std::string &costsIr) const {
  pumpgraph_compiler_options options{};
  options.struct_size = sizeof options;
  options.budget_bytes =
      session_.options.unlimited ? 0 : (session_.memory.frames->budgetFrames() - otherFrames) * pageBytes;
  options.up_bytes_per_second = session_.link.copies.up;
  options.down_bytes_per_second = session_.link.copies.down;
  options.both_bytes_per_second = session_.link.copies.both;
  options.costs_ir = costsIr.empty() ? nullptr : costsIr.c_str();
  options.device = session_.device.name.c_str();
  options.rematerialize = step_.planning.mayRepeat ? 1 : 0;
  return options; // host memory is not limited here: pinning it says precisely how much is missing
}

Status Rewriting::statusOf(pumpgraph_compiler_status compiled, const std::string &message, std::uint64_t otherFrames,
                           bool costsGiven) const {
  switch (compiled) {
  case PUMPGRAPH_COMPILED:
    return {};
  case PUMPGRAPH_COMPILER_UNPLANNABLE:
    return fail(
        PUMPGRAPH_UNPLANNABLE, "\"{}\" cannot be planned: {}{}", name(), message,
        otherFrames == 0 ? "" : fmt::format(" ({})", othersText(otherFrames, session_.memory.frames->budgetFrames())));
  case PUMPGRAPH_COMPILER_INVALID:
    return fail(costsGiven ? PUMPGRAPH_INVALID_ARGUMENT : PUMPGRAPH_INTERNAL,
                "the compiler library does not accept \"{}\": {}", name(), message);
  case PUMPGRAPH_COMPILER_NO_MEMORY:
    return fail(PUMPGRAPH_OUT_OF_HOST_MEMORY, "memory ran out while \"{}\" was planned", name());
  case PUMPGRAPH_COMPILER_REFUSED:
    return fail(PUMPGRAPH_INTERNAL, "the checker refused the plan for \"{}\": {}", name(), message);
  }
  return fail(PUMPGRAPH_INTERNAL, "the compiler library answers {}", static_cast<int>(compiled));
}

Expected<PlanRequest> Rewriting::request(std::uint64_t otherFrames, const std::string &costsIr, const Residence *others,
                                         std::span<const pumpgraph_apart_pages> apart) const {
  PlanRequest request;
  if (others) {
    otherFrames += others->unknownFrames();
    Expected<Description> known = others->boundaryFor(step_.captured.description, step_.captured.blocks);
    if (!known)
      return tl::unexpected<Error>(known.error());
    request.boundary = *known;
    request.boundary.nodes.clear();
    request.boundary.hostBytes = 0;
    request.given = std::move(*known);
  }
  request.budgetFrames = session_.memory.frames->budgetFrames();
  if (otherFrames >= request.budgetFrames)
    return fail(PUMPGRAPH_UNPLANNABLE, "nothing is left for \"{}\": {}", name(),
                othersText(otherFrames, request.budgetFrames));
  request.otherFrames = otherFrames;
  request.captured = step_.captured.description;
  request.costsIr = costsIr;
  request.device = session_.device.name;
  request.apart.assign(apart.begin(), apart.end());
  request.options = compilerOptions(otherFrames, "");
  return request;
}

pumpgraph_compiler_options Rewriting::watched(pumpgraph_compiler_options options) const {
  options.found_plan = [](double predictedUs, void *progress) {
    static_cast<Progress *>(progress)->foundPlan(predictedUs);
  };
  options.found_plan_user = &session_.progress;
  return options;
}

Compilation Rewriting::shown(const std::function<Compilation()> &plan) const {
  const NvtxRange range("pumpgraph plan");
  const PhaseScope planning(&session_.progress, Phase::Planning, 0);
  return plan();
}

Expected<CompiledPlan> Rewriting::take(const PlanRequest &request, Compilation compilation) {
  Expected<std::vector<CompiledPlan>> plans =
      takeAll(compilation, request.options, request.otherFrames, !request.costsIr.empty(), request.given.has_value());
  if (!plans)
    return tl::unexpected<Error>(plans.error());
  plans->front().boundary = request.given;
  return std::move(plans->front());
}

Expected<CompiledPlan> Rewriting::plan(std::uint64_t otherFrames, const std::string &costsIr, const Residence *others,
                                       std::span<const pumpgraph_apart_pages> apart) {
  Expected<PlanRequest> asked = request(otherFrames, costsIr, others, apart);
  if (!asked)
    return tl::unexpected<Error>(asked.error());
  asked->options = watched(asked->options);
  return take(*asked, shown([&] { return asked->run(compiler_); }));
}

Expected<double> Rewriting::predictUs(const Description &lowered) const {
  const pumpgraph_compiler_options options = compilerOptions(0, "");
  const DescriptionView view(lowered);
  double us = 0;
  char *problem = compiler_.predict(view.get(), &options, &us);
  if (!problem)
    return us;
  const std::string message = problem;
  compiler_.freeString(problem);
  return fail(PUMPGRAPH_INTERNAL, "the compiler library cannot predict \"{}\": {}", name(), message);
}

Expected<nlohmann::ordered_json> Rewriting::retimedFigures() const {
  const Description &captured = step_.captured.description;
  const pumpgraph_compiler_options options = compilerOptions(0, "");
  const Description timed = withMeasured(step_.plan.lowered, captured);
  const DescriptionView before(captured), after(timed);
  const std::uint64_t peakBytes = step_.plan.report ? step_.plan.report->value("peak_bytes_before", 0ULL) : 0;
  char *json = nullptr;
  char *problem = compiler_.retime(before.get(), after.get(), &options, peakBytes, &json);
  const std::unique_ptr<char, decltype(compiler_.freeString)> owner(problem ? problem : json, compiler_.freeString);
  if (problem)
    return fail(PUMPGRAPH_INTERNAL, "the compiler library cannot time \"{}\": {}", name(), problem);
  return nlohmann::ordered_json::parse(json, nullptr, false);
}

Expected<std::string> Rewriting::memoryViz() const {
  const Expected<pumpgraph_compiler_options> options =
      step_.isManaged() ? managedOptions("") : Expected<pumpgraph_compiler_options>(compilerOptions(0, ""));
  if (!options)
    return tl::unexpected<Error>(options.error());
  const DescriptionView view(step_.plan.lowered);
  char *pickle = nullptr;
  std::size_t size = 0;
  char *problem = compiler_.memoryViz(view.get(), &*options, &pickle, &size);
  const std::unique_ptr<char, decltype(compiler_.freeString)> owner(problem ? problem : pickle, compiler_.freeString);
  if (problem)
    return fail(PUMPGRAPH_INTERNAL, "the compiler library cannot trace the memory of \"{}\": {}", name(), problem);
  return std::string(pickle, size);
}

Expected<pumpgraph_compiler_options> Rewriting::managedOptions(const std::string &costsIr) const {
  const Expected<const ManagedLink *> link = managedLinkOf(session_);
  if (!link)
    return tl::unexpected<Error>(link.error());
  pumpgraph_compiler_options options = compilerOptions(0, costsIr);
  options.managed = 1;
  options.up_bytes_per_second = (*link)->typical.up;
  options.down_bytes_per_second = (*link)->typical.down;
  options.both_bytes_per_second = (*link)->typical.both;
  options.best_up_bytes_per_second = (*link)->best.up;
  options.best_down_bytes_per_second = (*link)->best.down;
  options.copy_overhead_us = (*link)->upOverheadUs;
  options.down_overhead_us = (*link)->downOverheadUs;
  options.request_us = (*link)->requestUs;
  options.empty_bytes_per_second = (*link)->emptyBytesPerSecond;
  options.down_at_once = static_cast<std::uint32_t>(session_.link.lanes->down().size());
  return options;
}

Expected<std::vector<CompiledPlan>> Rewriting::planManaged(const std::string &costsIr, const ManagedKnowledge &known) {
  const Hosting &hosting = known.hosting;
  const auto planOnce = [&]() -> Expected<std::vector<CompiledPlan>> {
    Expected<pumpgraph_compiler_options> made = managedOptions(costsIr);
    if (!made)
      return tl::unexpected<Error>(made.error());
    pumpgraph_compiler_options &options = *made;
    options.prefetching = known.prefetching;
    options.every_access_known = known.accessesAreKnown && driver_.memDiscardBatchAsync ? 1 : 0;
    options.hosting = hosting.choices.empty() ? nullptr : hosting.choices.data();
    options.hosted_us = hosting.nodesUs.empty() ? nullptr : hosting.nodesUs.data();
    options.hosted_rounds =
        static_cast<std::uint32_t>(hosting.nodesUs.size() / std::max<std::size_t>(1, step_.captured.nodes.size()));
    options.hosted_round = hosting.rounds.empty() ? nullptr : hosting.rounds.data();
    Description captured = step_.captured.description;
    for (BufferIndex buffer = 0; buffer < hosting.stays.size(); ++buffer)
      captured.buffers[buffer].hosted = hosting.stays[buffer];
    return takeAll(shown([&] { return compileNow(compiler_, captured, watched(options)); }), options, 0,
                   !costsIr.empty(), false);
  };
  Expected<std::vector<CompiledPlan>> plans = planOnce();
  if (!plans)
    return plans;
  const Expected<bool> disturbed = managedLinkWasDisturbed(session_);
  if (!disturbed)
    return tl::unexpected<Error>(disturbed.error());
  return *disturbed ? planOnce() : std::move(plans);
}

/// Where a step is planned again, most notes are those of the first time.
static void noteOnce(std::vector<std::string> &notes, const std::string &note) {
  if (std::find(notes.begin(), notes.end(), note) == notes.end())
    notes.push_back(note);
}

Expected<std::vector<CompiledPlan>> Rewriting::takeAll(const Compilation &compilation,
                                                       const pumpgraph_compiler_options &options,
                                                       std::uint64_t otherFrames, bool costsGiven,
                                                       bool isForSharedBoundary) {
  const pumpgraph_compilation *made = compilation.made.get();
  const pumpgraph_compiler_status compiled = compilation.status;
  const std::vector<Buffer> &buffers = step_.captured.description.buffers;
  hasRenamed_ = compiled == PUMPGRAPH_COMPILER_REFUSED &&
                std::any_of(buffers.begin(), buffers.end(), [](const Buffer &buffer) { return buffer.isRenamable; });
  hasRepeated_ = compiled == PUMPGRAPH_COMPILER_REFUSED && options.rematerialize != 0;
  PUMPGRAPH_TRY(statusOf(compiled, made ? compiler_.message(made) : "no message", otherFrames, costsGiven));
  std::vector<CompiledPlan> plans;
  while (const pumpgraph_candidate *candidate = compiler_.candidate(made, plans.size())) {
    Expected<CompiledPlan> plan = planOf(*candidate);
    if (!plan)
      return tl::unexpected<Error>(plan.error());
    plan->otherFrames = otherFrames;
    plan->savedTimes = compiler_.savedTimes(made);
    plans.push_back(std::move(*plan));
  }
  if (plans.empty())
    return fail(PUMPGRAPH_INTERNAL, "the compiler library has no plan for \"{}\"", name());
  const Description &lowered = plans.front().lowered;
  hasRenamed_ = lowered.buffers.size() > step_.captured.blocks.size();
  hasRepeated_ = std::any_of(lowered.nodes.begin(), lowered.nodes.end(),
                             [](const Node &node) { return node.kind == NodeKind::Rematerialize; });
  for (CompiledPlan &plan : plans)
    PUMPGRAPH_TRY(reserveContinuations(plan, isForSharedBoundary));
  for (std::uint64_t i = 0; const char *note = compiler_.note(made, i); ++i)
    noteOnce(step_.captured.notes, note);
  step_.history.times.planMs += compilation.milliseconds;
  return plans;
}

Expected<CompiledPlan> Rewriting::planOf(const pumpgraph_candidate &candidate) const {
  CompiledPlan plan;
  std::string problem = "there is none";
  if (!candidate.lowered || !fromC(*candidate.lowered, plan.lowered, problem))
    return fail(PUMPGRAPH_INTERNAL, "the compiler library's lowered step cannot be used: {}", problem);
  plan.name = candidate.name;
  plan.report = std::make_shared<const nlohmann::ordered_json>(
      nlohmann::ordered_json::parse(candidate.report_json, nullptr, false));
  return plan;
}

Status Rewriting::reserveContinuations(CompiledPlan &plan, bool isForSharedBoundary) const {
  const std::vector<Buffer> &captured = step_.captured.description.buffers;
  std::vector<Buffer> &buffers = plan.lowered.buffers;
  if (buffers.size() < captured.size())
    return fail(PUMPGRAPH_INTERNAL, "the compiler library changed the number of buffers from {} to {}", captured.size(),
                buffers.size());
  for (BufferIndex index = 0; index < buffers.size(); ++index) {
    Buffer &buffer = buffers[index];
    const bool isCaptured = index < captured.size();
    if (isCaptured != (buffer.continues == noBuffer))
      return fail(PUMPGRAPH_INTERNAL, "the compiler library returns {} buffers for {}, of which \"{}\" {}",
                  buffers.size(), captured.size(), buffer.name,
                  isCaptured ? "continues another one" : "is new and continues none");
    if (isCaptured)
      continue;
    const Buffer &continued = captured[capturedBuffer(buffers, index)];
    if (isForSharedBoundary || !continued.isRenamable || !buffer.isPrivate || buffer.liveIn || buffer.liveOut)
      return fail(PUMPGRAPH_INTERNAL, "the compiler library continues \"{}\" at another address, which cannot be",
                  continued.name);
    Expected<std::shared_ptr<const ReservedBlock>> block =
        ReservedBlock::create(*session_.memory.heap, plan.lowered.pageCount(index));
    if (!block)
      return inContext(block.error(), fmt::format("addresses for what \"{}\" becomes", continued.name));
    buffer.address = (*block)->address();
    plan.continuations.push_back(std::move(*block));
  }
  return {};
}

Expected<std::shared_ptr<Residence>> Rewriting::prepare(CompiledPlan &plan, std::unique_ptr<Residence> others) {
  const Stopwatch pinning;
  const std::vector<BlockId> blocks = plan.blocksOf(step_.captured);
  std::shared_ptr<Residence> residence = std::move(others);
  if (residence)
    residence->add(plan.lowered, blocks, plan.continuations);
  else
    residence = std::make_shared<Residence>(memoryTools(session_), plan.lowered, blocks, plan.continuations);
  plan.lowered = residence->withPlaces(plan.lowered, blocks);
  PUMPGRAPH_TRY(residence->addRows(plan.lowered, blocks));
  PUMPGRAPH_TRY_WHILE(residence->pin(), "getting host memory for \"{}\"", name());
  step_.history.times.pinnedMs = pinning.milliseconds();
  return residence;
}

Status Rewriting::putInForce(CompiledPlan plan, const std::shared_ptr<Residence> &residence, Keep keep) {
  const Stopwatch mapping;
  if (!residence->installed())
    if (const Status installed = install(session_, *residence); !installed) {
      noteIfLost(*residence);
      return inContext(installed.error(), fmt::format("mapping the memory of \"{}\"", name()));
    }
  step_.history.times.mapMs = mapping.milliseconds();
  auto editor = std::make_unique<GraphEditor>(driver_, step_.graph.handle, session_.device.context);
  const Status done = lowerAndCheck(*editor, plan, *residence);
  if (!done) {
    Error error = restoreAfter(done.error(), *editor, plan);
    if (const Status back = residence->remove(keep, {}, &step_.captured.blocks); !back) {
      noteIfLost(*residence);
      return inContext(std::move(error), back.error().message);
    }
    return tl::unexpected<Error>(std::move(error));
  }
  step_.graph.edits = std::move(editor);
  step_.memory.residence = residence;
  step_.plan = std::move(plan);
  step_.plan.boundary.reset(); // kept, from here on
  return {};
}

void Rewriting::restore(GraphEditor &editor, const CompiledPlan &plan) {
  restored_ = editor.undo();
  if (restored_)
    return;
  restored_ = inContext(std::move(restored_).error(),
                        fmt::format("the graph of \"{}\" is not as it was captured and must not be launched", name()));
  session_.leftovers.addresses.insert(session_.leftovers.addresses.end(), plan.continuations.begin(),
                                      plan.continuations.end());
  if (step_.memory.aside)
    session_.leftovers.asides.push_back(step_.memory.aside);
}

void Rewriting::leaveGraph() {
  restore(*step_.graph.edits, step_.plan);
  step_.graph.edits.reset();
  graphIsChanging(step_);
}

Error Rewriting::restoreAfter(Error why, GraphEditor &editor, const CompiledPlan &plan) {
  restore(editor, plan);
  if (!restored_)
    why.message += "; " + restored_.error().message;
  return why;
}

/// The residence is about to go, and with it what it knows.
void Rewriting::noteIfLost(const Residence &residence) {
  if (residence.lost())
    session_.values.lost.merge(residence.blocks());
}

Expected<std::shared_ptr<Residence>> Rewriting::takeBack(Keep keep) {
  PUMPGRAPH_TRY(step_.memory.residence->remove(keep, {}, &step_.captured.blocks));
  leaveGraph(); // its own copies are renewed by whoever puts a plan in force
  return std::move(step_.memory.residence);
}

Status Rewriting::lowerAndCheck(GraphEditor &editor, const CompiledPlan &plan, const Residence &residence) {
  const Stopwatch lowering;
  const CapturedStep &captured = step_.captured;
  const Expected<Repetitions> repetitions =
      lowerGraph(editor, plan.lowered, captured, step_.graph.lifted, plan.blocksOf(captured), residence);
  if (!repetitions)
    return inContext(repetitions.error(), fmt::format("rewriting the graph of \"{}\"", name()));
  step_.history.times.lowerMs = lowering.milliseconds();

  const Stopwatch checking;
  const Expected<LiftedGraph> again = liftGraph(driver_, step_.graph.handle, *session_.memory.addresses,
                                                session_.device.context, session_.fillKernel.get());
  if (!again)
    return inContext(again.error(), "lifting the rewritten graph");
  Expected<RewrittenStep> rewritten = describeRewritten(driver_, *again, step_.graph.lifted, captured, plan.lowered,
                                                        *repetitions, plan.blocksOf(captured), residence);
  if (!rewritten)
    return tl::unexpected<Error>(rewritten.error());
  const Description annotated = withAnnotations(captured.description, plan.lowered);
  const DescriptionView after(rewritten->description), before(annotated);
  if (char *violation = compiler_.check(after.get(), before.get())) {
    const std::string message = violation;
    compiler_.freeString(violation);
    return fail(PUMPGRAPH_INTERNAL, "the checker refused the rewritten graph of \"{}\": {}", name(), message);
  }
  if (plan.boundary)
    PUMPGRAPH_TRY(checkBoundary(*plan.boundary, rewritten->description, residence));
  step_.graph.readBack = std::move(*rewritten);
  step_.history.times.checkMs = checking.milliseconds();
  return {};
}

Status Rewriting::putInForceManaged(CompiledPlan plan) {
  const Stopwatch mapping;
  Expected<std::unique_ptr<ManagedStep>> managed =
      ManagedStep::create(driver_, session_.options.device, *session_.link.lanes, session_.device.stream, plan.lowered);
  if (!managed) {
    takeAdviceBack(step_, plan.lowered);
    return inContext(managed.error(), fmt::format("preparing the managed memory of \"{}\"", name()));
  }
  step_.history.times.mapMs = mapping.milliseconds();
  auto editor = std::make_unique<GraphEditor>(driver_, step_.graph.handle, session_.device.context);
  if (Status done = lowerAndCheckManaged(*editor, plan, (*managed)->words()); !done) {
    takeAdviceBack(step_, plan.lowered);
    return tl::unexpected<Error>(restoreAfter(std::move(done).error(), *editor, plan));
  }
  step_.graph.edits = std::move(editor);
  step_.memory.managed = std::move(*managed);
  step_.plan = std::move(plan);
  return {};
}

Status Rewriting::takeBackManaged() {
  const Status idle = step_.memory.managed->waitUntilIdle(); // even if not, nothing must be left in the graph
  takeAdviceBack(step_, step_.plan.lowered);
  leaveGraph();
  step_.memory.managed.reset();
  return restored_ ? idle : restored_;
}

Status Rewriting::lowerAndCheckManaged(GraphEditor &editor, const CompiledPlan &plan, CUdeviceptr words) {
  const Stopwatch lowering;
  const CapturedStep &captured = step_.captured;
  PUMPGRAPH_TRY_WHILE(addOperations(editor, plan.lowered, captured, words), "rewriting the graph of \"{}\"", name());
  step_.history.times.lowerMs = lowering.milliseconds();

  const Stopwatch checking;
  const Expected<LiftedGraph> again =
      liftGraph(driver_, step_.graph.handle, *session_.memory.addresses, session_.device.context);
  if (!again)
    return inContext(again.error(), "lifting the rewritten graph");
  const Expected<Description> rewritten =
      describeManaged(driver_, *again, step_.graph.lifted, captured, plan.lowered, words);
  if (!rewritten)
    return tl::unexpected<Error>(rewritten.error());
  const Description annotated = withAnnotations(captured.description, plan.lowered);
  const DescriptionView after(*rewritten), before(annotated);
  step_.history.times.checkMs = checking.milliseconds();
  char *violation = compiler_.checkManaged(after.get(), before.get());
  if (!violation)
    return {};
  const std::string message = violation;
  compiler_.freeString(violation);
  return fail(PUMPGRAPH_INTERNAL, "the checker refused the rewritten graph of \"{}\": {}", name(), message);
}

Status Rewriting::checkBoundary(const Description &boundary, Description rewritten, const Residence &residence) const {
  const std::map<FrameId, std::int32_t> numbers = residence.numbersOfFrames();
  for (Buffer &buffer : rewritten.buffers)
    for (std::int32_t &frame : buffer.frames)
      frame = frame == noFrame ? noFrame : numbers.at(frame);
  const DescriptionView after(rewritten), before(boundary);
  char *violation = compiler_.checkBoundary(after.get(), before.get());
  if (!violation)
    return {};
  const std::string message = violation;
  compiler_.freeString(violation);
  return fail(PUMPGRAPH_INTERNAL, "the rewritten graph of \"{}\" does not keep the boundary that it shares: {}", name(),
              message);
}

} // namespace pumpgraph::runtime
