// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/Adoption.h"

#include "runtime/capture/FindHiddenPointers.h"
#include "runtime/measure/Calibration.h"
#include "runtime/measure/KeptValues.h"
#include "runtime/session/Replanner.h"
#include "runtime/session/Report.h"
#include "runtime/state/Backend.h"
#include "runtime/state/Budget.h"
#include "runtime/state/Exchange.h"
#include "runtime/state/Values.h"

#include <algorithm>

namespace pumpgraph::runtime {

Expected<std::unique_ptr<StepState>> Adoption::run() {
  Expected<std::unique_ptr<StepState>> step = tryRun();
  heap_.giveStandInsBack(
      stoodIn_); // what a rehearsal left alive; after a failure all, for the graph may be adopted yet
  return step;
}

Expected<std::unique_ptr<StepState>> Adoption::tryRun() {
  step_ = std::make_unique<StepState>(session_, graph_); // owns the graph only once all went well
  PUMPGRAPH_TRY(renewIfCapturedElsewhere());
  PUMPGRAPH_TRY(lift());
  PUMPGRAPH_TRY(describe());
  PUMPGRAPH_TRY(chooseBackend());
  PUMPGRAPH_TRY(checkAgainstOtherSteps());
  if (const std::string reason = refusal(); !reason.empty()) {
    if (!step_->captured.refusals.empty() && !choosesByStep(session_))
      step_->captured.notes.push_back(session_.options.backend == BackendChoice::Automatic
                                          ? "managed memory would take this step, but the session has no addresses "
                                            "that it could have"
                                          : "managed memory would take this step: in a session on it, or in one that "
                                            "chooses by itself");
    PUMPGRAPH_TRY(leaveAsCaptured(reason));
    return finish();
  }
  const Expected<const Compiler *> compiler = compilerOf(session_);
  if (!compiler) {
    PUMPGRAPH_TRY(leaveAsCaptured(compiler.error().message));
    return finish();
  }
  PUMPGRAPH_TRY(fitBudget(session_));
  PUMPGRAPH_TRY(makeRoom());
  if (options_.calibrate && step_->captured.refusals.empty()) {
    const std::string effect = KeptValues::lastingEffect(*step_);
    if (effect.empty()) {
      PUMPGRAPH_TRY(calibrate());
      accessesAreKnown_ = true;
    } else {
      const std::string reason = "it cannot be calibrated, for a run could not be undone: " + effect;
      if (!session_.backend.isManaged) { // who asks for it knows of addresses that would not be found
        PUMPGRAPH_TRY(leaveAsCaptured(reason));
        return finish();
      }
      step_->captured.notes.push_back(reason);
    }
  }
  PUMPGRAPH_TRY(session_.backend.isManaged ? rewriteManaged(**compiler) : rewrite(**compiler));
  return finish();
}

Status Adoption::lift() {
  const Stopwatch watch;
  Expected<LiftedGraph> lifted = liftGraph(driver_, graph_, *session_.memory.addresses, session_.device.context);
  if (!lifted)
    return tl::unexpected<Error>(lifted.error());
  step_->graph.lifted = std::move(*lifted);
  PUMPGRAPH_TRY(checkNothingIsLeft());
  const NodeLabels &labels = session_.capture.declarations.labels();
  const Operations &operations = session_.capture.declarations.operations();
  const Arithmetics &arithmetics = session_.capture.declarations.arithmetics();
  for (LiftedNode &node : step_->graph.lifted.nodes) {
    if (const auto found = labels.find(node.handle); found != labels.end())
      node.label = found->second;
    if (const auto found = operations.find(node.handle); found != operations.end())
      node.operation = found->second;
    if (const auto found = arithmetics.find(node.handle); found != arithmetics.end())
      node.arithmetic = found->second;
  }
  if (session_.capture.rehearsal)
    session_.capture.rehearsal->forgetNodesBeside(step_->graph.lifted);
  finder_.emplace(heap_, session_.capture.rehearsal ? &*session_.capture.rehearsal : nullptr, step_->graph.lifted,
                  session_.capture.declarations, &AccessTables::ofProcess(), &session_.capture.kernelReads);
  if (finder_->comparedWithRehearsal())
    takeNames(*session_.capture.rehearsal);
  step_->history.times.captureMs = session_.capture.milliseconds;
  step_->history.times.liftMs = watch.milliseconds();
  return {};
}

/// A graph that could not be restored would compute with memory that is gone.
Status Adoption::checkNothingIsLeft() const {
  const auto isLeft = [&](const PointerWord &word) {
    const auto contains = [&](const auto &memory) { return memory->contains(word.value); };
    return std::any_of(session_.leftovers.addresses.begin(), session_.leftovers.addresses.end(), contains) ||
           std::any_of(session_.leftovers.asides.begin(), session_.leftovers.asides.end(), contains);
  };
  for (const LiftedNode &node : step_->graph.lifted.nodes)
    if (std::any_of(node.words.begin(), node.words.end(), isLeft))
      return fail(PUMPGRAPH_INTERNAL, "\"{}\" still has the address of an earlier plan in its graph; capture it anew",
                  node.name);
  return {};
}

void Adoption::takeNames(const Rehearsal &rehearsal) {
  const Tenancies tenancies(step_->graph.lifted, heap_);
  for (std::size_t position = 0; position < step_->graph.lifted.nodes.size(); ++position) {
    LiftedNode &node = step_->graph.lifted.nodes[position];
    if (node.label.empty())
      node.label = rehearsal.label(position);
    if (!node.operation)
      node.operation = rehearsal.operation(position);
    if (node.arithmetic.group == 0)
      node.arithmetic = rehearsal.arithmetic(position);
    for (const PointerWord &word : node.words)
      if (const std::optional<Hit> hit = heap_.find(word.value))
        if (Allocation &allocation = heap_.member(tenancies.at(position, *hit)); allocation.name.empty())
          allocation.name = rehearsal.nameOf(position, word);
  }
}

Status Adoption::describe() {
  const Stopwatch watch;
  const CapturedStep asDeclared = describeStep(step_->graph.lifted, heap_, *finder_, {});
  if (isLost(session_, asDeclared.blocks))
    return fail(PUMPGRAPH_INTERNAL, "\"{}\" uses buffers that lost their memory in an earlier failure", options_.name);
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device before buffers are read");
  Expected<HiddenPointers> hidden = findHiddenPointers(
      driver_, step_->graph.lifted, heap_, asDeclared.blocks, *session_.memory.staging, session_.device.stream,
      [&](std::uint64_t at, const Hit &target) { return isFollowed(asDeclared, heap_, at, target); });
  if (!hidden)
    return tl::unexpected<Error>(hidden.error());
  staying_ = std::move(hidden->pointedAt);
  followed_ = std::move(hidden->followed);
  for (BufferIndex buffer = 0; buffer < asDeclared.blocks.size(); ++buffer) {
    if (isPrivateElsewhere(asDeclared.blocks[buffer]))
      continue;
    staying_.insert(asDeclared.blocks[buffer]);
    if (asDeclared.description.buffers[buffer].isPrivate)
      hidden->notes.push_back(
          fmt::format("another step of the session uses \"{}\", which therefore stays on the device",
                      asDeclared.description.buffers[buffer].name));
  }
  addReachedFrom(followed_, staying_);
  CapturedStep &captured = step_->captured;
  captured = staying_.empty() ? asDeclared : describeStep(step_->graph.lifted, heap_, *finder_, staying_);
  if (!captured.conflict.empty())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\": {}", options_.name, captured.conflict);
  captured.description.name = options_.name;
  captured.notes.insert(captured.notes.end(), hidden->notes.begin(), hidden->notes.end());
  if (session_.capture.rehearsal && !finder_->comparedWithRehearsal())
    captured.notes.push_back(fmt::format("the rehearsal's graph is another one ({}): every word that looks like an "
                                         "address is taken for one",
                                         session_.capture.rehearsal->differenceTo(step_->graph.lifted)));
  if (session_.capture.rehearsal && finder_->comparedWithRehearsal() && session_.capture.rehearsal->forgotten() > 0)
    captured.notes.push_back(fmt::format("the rehearsal's graph is another one by {} nodes that the step does without",
                                         session_.capture.rehearsal->forgotten()));
  step_->history.times.scanMs = watch.milliseconds();
  return {};
}

bool Adoption::isPrivateElsewhere(BlockId block) const {
  const auto mayMove = [&](const StepState &step) {
    const std::vector<BlockId> &blocks = step.captured.blocks;
    const auto found = std::find(blocks.begin(), blocks.end(), block);
    return found != blocks.end() && (step.isRewritten() || step.isManaged()) &&
           step.captured.description.buffers[static_cast<std::size_t>(found - blocks.begin())].isPrivate;
  };
  const auto sends = std::count_if(session_.steps.begin(), session_.steps.end(),
                                   [&](const std::unique_ptr<StepState> &step) { return mayMove(*step); });
  return heap_.block(block).retainers == static_cast<std::uint64_t>(sends);
}

Status Adoption::calibrate() {
  const Stopwatch watch;
  const bool checksPurity = mayRepeat() && !options_.trustPurity;
  Calibration calibration(*step_, checksPurity ? PurityCheck::repeatable(*step_) : std::vector<NodeIndex>());
  Expected<HiddenPointers> hidden = calibration.run();
  if (!hidden)
    return inContext(hidden.error(), fmt::format("calibrating \"{}\"", options_.name));
  CapturedStep &captured = step_->captured;
  std::vector<std::string> notes = std::move(captured.notes);
  notes.insert(notes.end(), hidden->notes.begin(), hidden->notes.end());
  staying_.merge(hidden->pointedAt);
  followed_.merge(hidden->followed);
  addReachedFrom(followed_, staying_);
  captured = describeStep(step_->graph.lifted, heap_, *finder_, staying_, hidden->pointAtSelf);
  captured.description.name = options_.name;
  captured.notes = std::move(notes);
  takePurity(calibration.falsePurities());
  step_->history.times.calibrateMs = watch.milliseconds();
  return {};
}

std::string Adoption::refusal() const {
  if (options_.leaveAsCaptured)
    return "asked for";
  const std::vector<std::string> &refusals = step_->captured.refusals;
  if (refusals.empty() || session_.backend.isManaged) // what cannot be seen is slow in managed memory, not wrong
    return "";
  return refusals.size() == 1 ? refusals.front() : fmt::format("{} (and {} more)", refusals[0], refusals.size() - 1);
}

Status Adoption::checkAgainstOtherSteps() const {
  const CapturedStep &captured = step_->captured;
  if (refusal().empty())
    return {};
  for (const std::unique_ptr<StepState> &other : session_.steps)
    for (BufferIndex buffer = 0; other->isRewritten() && buffer < captured.blocks.size(); ++buffer)
      if (!other->memory.residence->isWhollyResident(captured.blocks[buffer]))
        return fail(PUMPGRAPH_INVALID_ARGUMENT,
                    "\"{}\" uses \"{}\", which the rewritten step \"{}\" keeps in host memory between replays",
                    options_.name, captured.description.buffers[buffer].name, other->name());
  return {};
}

Status Adoption::makeRoom() {
  std::set<BlockId> used(step_->captured.blocks.begin(), step_->captured.blocks.end());
  used.insert(step_->captured.besides.begin(), step_->captured.besides.end());
  heap_.recycleUnused(used);
  PUMPGRAPH_TRY(heap_.flushCache());
  return heap_.takeStandInsAway(stoodIn_);
}

Status Adoption::backResults() {
  for (const BlockId id : step_->captured.besides) {
    Block &block = heap_.block(id);
    if (!block.hasMemory())
      PUMPGRAPH_TRY_WHILE(heap_.back(block), "giving memory to \"{}\"", block.members.front().name);
  }
  return {};
}

Status Adoption::leaveAsCaptured(std::string reason) {
  const Stopwatch mapping;
  step_->report.reason = std::move(reason);
  PUMPGRAPH_TRY(heap_.takeStandInsAway(stoodIn_));
  if (before_) // first, so that it finds the memory it had
    PUMPGRAPH_TRY(putInForce(*before_));
  step_->plan.otherFrames = otherFrames(*step_);
  for (BufferIndex buffer = 0; buffer < step_->captured.blocks.size(); ++buffer) {
    Block &block = heap_.block(step_->captured.blocks[buffer]);
    if (!block.hasMemory())
      PUMPGRAPH_TRY_WHILE(heap_.back(block), "giving memory to \"{}\"",
                          step_->captured.description.buffers[buffer].name);
  }
  PUMPGRAPH_TRY(backResults());
  step_->history.times.mapMs = mapping.milliseconds();
  return {};
}

Expected<std::unique_ptr<StepState>> Adoption::finish() {
  for (const std::vector<BlockId> *blocks : {&step_->captured.blocks, &step_->captured.besides})
    for (const BlockId block : *blocks)
      heap_.retain(heap_.block(block));
  heap_.dropCapture();
  if (together_) {
    together_->keep();
    step_->history.plannedAgain = together_->names();
  }
  step_->graph.isOwned = options_.ownsGraph;
  step_->report.backendWhy = backendWhy();
  if (fills_)
    fills_->commit();
  if (step_->isRewritten() && !options_.keepFirstPlan)
    if (const Expected<const Compiler *> compiler = compilerOf(session_))
      watchReplays(*step_, **compiler);
  writeReport(*step_);
  announce();
  return std::move(step_);
}

void Adoption::announce() const {
  Messages &messages = session_.messages;
  const CapturedStep &captured = step_->captured;
  const auto say = [&](Level level, const std::string &text) {
    messages.add(level, fmt::format("step \"{}\": {}", options_.name, text));
  };
  for (const std::string &note : captured.notes)
    say(Level::Debug, note);
  for (const std::string &warning : captured.warnings)
    say(Level::Warning, warning);
  if (step_->isRewritten() || step_->isManaged())
    say(Level::Info, fmt::format("{} nodes and {} buffers were planned in {:.0f} ms; predicted {:.1f} ms a replay",
                                 captured.description.nodes.size(), captured.description.buffers.size(),
                                 step_->history.times.planMs, step_->plan.predictedUs() * 1e-3));
  else
    say(options_.leaveAsCaptured ? Level::Info : Level::Warning,
        "replayed exactly as captured: " + step_->report.reason);
}

} // namespace pumpgraph::runtime
