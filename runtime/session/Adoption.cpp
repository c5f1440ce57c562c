// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/Adoption.h"

#include "pumpgraph/graph/Ranges.h"
#include "runtime/capture/FindHiddenPointers.h"
#include "runtime/capture/OutsideMemory.h"
#include "runtime/lower/CloneNode.h"
#include "runtime/lower/RenewCopies.h"
#include "runtime/lower/ReplaceFills.h"
#include "runtime/session/Calibration.h"
#include "runtime/session/KeptValues.h"
#include "runtime/session/Rewriting.h"

#include <algorithm>
#include <map>

namespace pumpgraph::runtime {

/// A step that takes so many times as long in the boundary of another as for itself is planned for itself.
constexpr double mostSlowdown = 1.3;

Expected<std::unique_ptr<Step>> Adoption::run() {
  Expected<std::unique_ptr<Step>> step = tryRun();
  heap_.giveStandInsBack(
      stoodIn_); // what a rehearsal left alive; after a failure all, for the graph may be adopted yet
  return step;
}

Expected<std::unique_ptr<Step>> Adoption::tryRun() {
  step_ = std::make_unique<Step>(session_, graph_); // owns the graph only once all went well
  PUMPGRAPH_TRY(renewIfCapturedElsewhere());
  PUMPGRAPH_TRY(lift());
  PUMPGRAPH_TRY(describe());
  PUMPGRAPH_TRY(chooseBackend());
  PUMPGRAPH_TRY(checkAgainstOtherSteps());
  if (const std::string reason = refusal(); !reason.empty()) {
    if (!step_->captured_.refusals.empty() && !session_.choosesByStep())
      step_->captured_.notes.push_back(session_.options_.backend == BackendChoice::Automatic
                                           ? "managed memory would take this step, but the session has no addresses "
                                             "that it could have"
                                           : "managed memory would take this step: in a session on it, or in one that "
                                             "chooses by itself");
    PUMPGRAPH_TRY(leaveAsCaptured(reason));
    return finish();
  }
  const Expected<const Compiler *> compiler = session_.compiler();
  if (!compiler) {
    PUMPGRAPH_TRY(leaveAsCaptured(compiler.error().message));
    return finish();
  }
  PUMPGRAPH_TRY(session_.fitBudget());
  PUMPGRAPH_TRY(makeRoom());
  if (options_.calibrate && step_->captured_.refusals.empty()) {
    const std::string effect = KeptValues::lastingEffect(*step_);
    if (effect.empty()) {
      PUMPGRAPH_TRY(calibrate());
      accessesAreKnown_ = true;
    } else {
      const std::string reason = "it cannot be calibrated, for a run could not be undone: " + effect;
      if (!session_.managed_) { // who asks for it knows of addresses that would not be found
        PUMPGRAPH_TRY(leaveAsCaptured(reason));
        return finish();
      }
      step_->captured_.notes.push_back(reason);
    }
  }
  PUMPGRAPH_TRY(session_.managed_ ? rewriteManaged(**compiler) : rewrite(**compiler));
  return finish();
}

Status Adoption::lift() {
  const Stopwatch watch;
  Expected<LiftedGraph> lifted = liftGraph(driver_, graph_, *session_.addresses_, session_.context_);
  if (!lifted)
    return tl::unexpected<Error>(lifted.error());
  step_->lifted_ = std::move(*lifted);
  PUMPGRAPH_TRY(checkNothingIsLeft());
  const NodeLabels &labels = session_.declarations_.labels();
  const Operations &operations = session_.declarations_.operations();
  const Arithmetics &arithmetics = session_.declarations_.arithmetics();
  for (LiftedNode &node : step_->lifted_.nodes) {
    if (const auto found = labels.find(node.handle); found != labels.end())
      node.label = found->second;
    if (const auto found = operations.find(node.handle); found != operations.end())
      node.operation = found->second;
    if (const auto found = arithmetics.find(node.handle); found != arithmetics.end())
      node.arithmetic = found->second;
  }
  finder_.emplace(heap_, session_.rehearsal_ ? &*session_.rehearsal_ : nullptr, step_->lifted_, session_.declarations_,
                  &AccessTables::ofProcess(), &session_.kernelReads_);
  if (finder_->comparedWithRehearsal())
    takeNames(*session_.rehearsal_);
  step_->times_.captureMs = session_.captureMs_;
  step_->times_.liftMs = watch.milliseconds();
  return {};
}

/// A graph that could not be restored would compute with memory that is gone.
Status Adoption::checkNothingIsLeft() const {
  const auto isLeft = [&](const PointerWord &word) {
    const auto contains = [&](const auto &memory) { return memory->contains(word.value); };
    return std::any_of(session_.leftInGraphs_.begin(), session_.leftInGraphs_.end(), contains) ||
           std::any_of(session_.asidesInGraphs_.begin(), session_.asidesInGraphs_.end(), contains);
  };
  for (const LiftedNode &node : step_->lifted_.nodes)
    if (std::any_of(node.words.begin(), node.words.end(), isLeft))
      return fail(PUMPGRAPH_INTERNAL, "\"{}\" still has the address of an earlier plan in its graph; capture it anew",
                  node.name);
  return {};
}

void Adoption::takeNames(const Rehearsal &rehearsal) {
  const Tenancies tenancies(step_->lifted_, heap_);
  for (std::size_t position = 0; position < step_->lifted_.nodes.size(); ++position) {
    LiftedNode &node = step_->lifted_.nodes[position];
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
  const CapturedStep asDeclared = describeStep(step_->lifted_, heap_, *finder_, {});
  if (session_.isLost(asDeclared.blocks))
    return fail(PUMPGRAPH_INTERNAL, "\"{}\" uses buffers that lost their memory in an earlier failure", options_.name);
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device before buffers are read");
  Expected<HiddenPointers> hidden =
      findHiddenPointers(driver_, step_->lifted_, heap_, asDeclared.blocks, *session_.staging_, session_.stream_);
  if (!hidden)
    return tl::unexpected<Error>(hidden.error());
  staying_ = std::move(hidden->pointedAt);
  for (BufferIndex buffer = 0; buffer < asDeclared.blocks.size(); ++buffer) {
    if (isPrivateElsewhere(asDeclared.blocks[buffer]))
      continue;
    staying_.insert(asDeclared.blocks[buffer]);
    if (asDeclared.description.buffers[buffer].isPrivate)
      hidden->notes.push_back(
          fmt::format("another step of the session uses \"{}\", which therefore stays on the device",
                      asDeclared.description.buffers[buffer].name));
  }
  CapturedStep &captured = step_->captured_;
  captured = staying_.empty() ? asDeclared : describeStep(step_->lifted_, heap_, *finder_, staying_);
  if (!captured.conflict.empty())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\": {}", options_.name, captured.conflict);
  captured.description.name = options_.name;
  captured.notes.insert(captured.notes.end(), hidden->notes.begin(), hidden->notes.end());
  if (session_.rehearsal_ && !finder_->comparedWithRehearsal())
    captured.notes.push_back("the rehearsal's graph is another one: every word that looks like an address is taken "
                             "for one");
  step_->times_.scanMs = watch.milliseconds();
  return {};
}

bool Adoption::isPrivateElsewhere(BlockId block) const {
  const auto mayMove = [&](const Step &step) {
    const std::vector<BlockId> &blocks = step.captured_.blocks;
    const auto found = std::find(blocks.begin(), blocks.end(), block);
    return found != blocks.end() && (step.rewritten() || step.isManaged()) &&
           step.captured_.description.buffers[static_cast<std::size_t>(found - blocks.begin())].isPrivate;
  };
  const auto sends = std::count_if(session_.steps_.begin(), session_.steps_.end(),
                                   [&](const std::unique_ptr<Step> &step) { return mayMove(*step); });
  return heap_.block(block).retainers == static_cast<std::uint64_t>(sends);
}

Status Adoption::calibrate() {
  const Stopwatch watch;
  Calibration calibration(*step_, mayRepeat() ? PurityCheck::repeatable(*step_) : std::vector<NodeIndex>());
  Expected<HiddenPointers> hidden = calibration.run();
  if (!hidden)
    return inContext(hidden.error(), fmt::format("calibrating \"{}\"", options_.name));
  CapturedStep &captured = step_->captured_;
  std::vector<std::string> notes = std::move(captured.notes);
  notes.insert(notes.end(), hidden->notes.begin(), hidden->notes.end());
  staying_.merge(hidden->pointedAt);
  captured = describeStep(step_->lifted_, heap_, *finder_, staying_, hidden->pointAtSelf);
  captured.description.name = options_.name;
  captured.notes = std::move(notes);
  takePurity(calibration.falsePurities());
  step_->times_.calibrateMs = watch.milliseconds();
  return {};
}

Expected<bool> Adoption::isShortOfFrames() {
  PUMPGRAPH_TRY(makeRoom());
  std::uint64_t pages = 0;
  for (const std::vector<BlockId> *blocks : {&step_->captured_.blocks, &step_->captured_.besides})
    for (const BlockId id : *blocks)
      pages += heap_.block(id).hasMemory() ? 0 : heap_.block(id).pages;
  return !heap_.hasFramesFor(pages);
}

Status Adoption::renewIfCapturedElsewhere() {
  if (session_.copiesAreOfManaged_ == session_.managed_)
    return {};
  PUMPGRAPH_TRY(renewCopies(driver_, graph_, *session_.addresses_));
  session_.copiesAreOfManaged_ = session_.managed_;
  return {};
}

bool Adoption::mayHaveBodies() const {
  return std::any_of(step_->lifted_.nodes.begin(), step_->lifted_.nodes.end(), [](const LiftedNode &node) {
    return node.kind == NodeKind::Conditional || (node.kind == NodeKind::ChildGraph && !node.refusal.empty());
  });
}

Status Adoption::chooseBackend() {
  if (!session_.choosesByStep())
    return {};
  std::vector<std::string> &notes = step_->captured_.notes;
  const bool isUnseen = !step_->captured_.refusals.empty();
  const bool isLeft = options_.leaveAsCaptured || !session_.compiler();
  // What is left as captured could be anywhere, and should be where the other steps are.
  const bool wantsManaged = isLeft ? session_.hasManagedStep() && !before_ : isUnseen;
  // A plan of frames is not for addresses in turns, which a capture that was rehearsed on managed memory has.
  const bool hasAddressesInTurns = session_.managed_ && session_.rehearsal_;
  if (wantsManaged == session_.managed_ || (isLeft ? wantsManaged : hasAddressesInTurns))
    return {};
  if (wantsManaged && mayHaveBodies()) {
    notes.push_back("managed memory would take this step if it were captured there, which a rehearsal decides: copies "
                    "in the body of a conditional node go by the memory that they were captured on");
    return {};
  }
  if (wantsManaged && !session_.hasManagedStep()) { // else that step could not have its memory back
    const Expected<bool> isShort = isShortOfFrames();
    if (!isShort)
      return tl::unexpected<Error>(isShort.error());
    if (!*isShort) {
      notes.push_back("the budget has room for all of the step as it was captured, so managed memory would gain "
                      "nothing");
      return {};
    }
  }
  const Expected<std::string> obstacle = wantsManaged ? session_.moveToManaged() : session_.moveToVirtual();
  if (!obstacle)
    return inContext(obstacle.error(), fmt::format("taking other memory for \"{}\"", options_.name));
  if (!obstacle->empty()) {
    notes.push_back(
        fmt::format("{} memory would take this step, but {}", wantsManaged ? "managed" : "virtual", *obstacle));
    return {};
  }
  stoodIn_.clear();
  PUMPGRAPH_TRY(renewIfCapturedElsewhere());
  return describe();
}

std::string Adoption::backendWhy() const {
  if (!session_.choosesByStep())
    return session_.backendWhy_;
  if (step_->rewritten())
    return "virtual memory, because every node of the step can be seen into";
  if (!session_.managed_)
    return session_.backendWhy_;
  return !step_->isManaged() || step_->captured_.refusals.empty()
             ? "managed memory, where the session is"
             : fmt::format("managed memory, because virtual memory does not take {}",
                           step_->captured_.refusals.front());
}

std::string Adoption::refusal() const {
  if (options_.leaveAsCaptured)
    return "asked for";
  const std::vector<std::string> &refusals = step_->captured_.refusals;
  if (refusals.empty() || session_.managed_) // what cannot be seen is slow in managed memory, not wrong
    return "";
  return refusals.size() == 1 ? refusals.front() : fmt::format("{} (and {} more)", refusals[0], refusals.size() - 1);
}

Status Adoption::checkAgainstOtherSteps() const {
  const CapturedStep &captured = step_->captured_;
  if (refusal().empty())
    return {};
  for (const std::unique_ptr<Step> &other : session_.steps_)
    for (BufferIndex buffer = 0; other->rewritten() && buffer < captured.blocks.size(); ++buffer)
      if (!other->residence_->isWhollyResident(captured.blocks[buffer]))
        return fail(PUMPGRAPH_INVALID_ARGUMENT,
                    "\"{}\" uses \"{}\", which the rewritten step \"{}\" keeps in host memory between replays",
                    options_.name, captured.description.buffers[buffer].name, other->captured_.description.name);
  return {};
}

Status Adoption::makeRoom() {
  std::set<BlockId> used(step_->captured_.blocks.begin(), step_->captured_.blocks.end());
  used.insert(step_->captured_.besides.begin(), step_->captured_.besides.end());
  heap_.recycleUnused(used);
  PUMPGRAPH_TRY(heap_.flushCache());
  return heap_.takeStandInsAway(stoodIn_);
}

Status Adoption::rewrite(const Compiler &compiler) {
  const Status done = rewriteVirtual(compiler);
  if (!done && fills_)
    session_.rehearsal_.reset(); // fills return at other places among the nodes, and what it knows goes by place
  return done;
}

Status Adoption::rewriteVirtual(const Compiler &compiler) {
  Rewriting rewriting(*step_, compiler);
  PUMPGRAPH_TRY_WHILE(step_->keepOriginal(), "keeping the graph as captured");
  PUMPGRAPH_TRY_WHILE(keepRepeatable(), "trying which nodes can be run again");
  std::shared_ptr<Residence> others;
  if (neighbour_ && neighbour_->rewritten() && neighbour_->checkMemory() && options_.boundary != BoundaryChoice::Own) {
    const Expected<std::string> obstacle = shareBoundary(rewriting, compiler);
    if (!obstacle)
      return tl::unexpected<Error>(obstacle.error());
    if (obstacle->empty())
      others = neighbour_->residence_;
    else
      step_->captured_.notes.push_back(fmt::format("replays after \"{}\" exchange plans, because there is no good one "
                                                   "that keeps its boundary: {}",
                                                   neighbour_->captured_.description.name, *obstacle));
  }
  if (!others)
    PUMPGRAPH_TRY(rewriteAlone(rewriting));
  step_->beginPlan(step_->plan_.savedTimes == 0 ? "static estimates" : "saved times", "the first plan");
  const Status backed = backResults();
  if (backed) {
    if (others)
      session_.replaceResidence(others, step_->residence_);
    return {};
  }
  const Expected<std::shared_ptr<Residence>> removed = rewriting.takeBack(Keep::EveryBlock);
  if (const Status back = returnOthersPlans(); !back)
    return inContext(backed.error(), back.error().message);
  if (removed)
    return rewriting.restored() ? backed : inContext(backed.error(), rewriting.restored().error().message);
  if (fills_)
    fills_->commit(); // the plan's copies stay beside them
  return inContext(backed.error(), removed.error().message);
}

static void forgetAsides(Node &node) {
  for (Access &access : node.accesses)
    access.isAside = false;
}

bool Adoption::mayRepeat() const {
  return !session_.managed_ && session_.options_.rematerialize == RematerializeChoice::Automatic &&
         options_.rematerialize == RematerializeChoice::Automatic;
}

/// A kernel that adds up in another order each time may come out the same twice, by chance.
void Adoption::takePurity(const std::vector<FalsePurity> &found) {
  CapturedStep &captured = step_->captured_;
  for (const FalseKernel &kernel : byKernel(found, captured.description)) {
    std::size_t count = 0;
    for (Node &node : captured.description.nodes)
      if (node.isPure && node.name == kernel.name) {
        node.isPure = false;
        forgetAsides(node);
        ++count;
      }
    captured.notes.push_back(
        fmt::format("{}; no plan runs {} again", kernel.text, count == 1 ? "it" : fmt::format("its {} nodes", count)));
  }
}

Status Adoption::keepRepeatable() {
  step_->mayRepeat_ = mayRepeat();
  if (!step_->mayRepeat_)
    return {};
  struct Refused {
    std::size_t count = 0, first = 0;
  };
  std::map<std::string, Refused> refused; ///< by reason
  std::size_t pure = 0;
  std::vector<Node> &nodes = step_->captured_.description.nodes;
  for (std::size_t position = 0; position < nodes.size(); ++position) {
    Node &node = nodes[position];
    if (!node.isPure)
      continue;
    ++pure;
    const Expected<std::string> obstacle = obstacleToRepetition(position);
    if (!obstacle)
      return tl::unexpected<Error>(obstacle.error());
    if (obstacle->empty())
      continue;
    node.isPure = false;
    forgetAsides(node);
    if (refused[*obstacle].count++ == 0)
      refused[*obstacle].first = position;
  }
  for (const auto &[reason, some] : refused)
    step_->captured_.notes.push_back(
        fmt::format("{} of {} pure nodes cannot be run again: {}; the first is node {} \"{}\"", some.count, pure,
                    reason, some.first, nodes[some.first].name));
  return getAsideMemory();
}

Status Adoption::getAsideMemory() {
  CapturedStep &captured = step_->captured_;
  std::uint64_t most = 0;
  for (std::size_t position = 0; position < captured.nodes.size(); ++position)
    for (const AsideWord &word : asideWords(captured.description, position))
      most = std::max(most, word.bytes);
  if (most == 0)
    return {};
  Expected<std::shared_ptr<const AsideMemory>> memory = AsideMemory::create(heap_, most + asideAlignment);
  if (memory) {
    step_->aside_ = std::move(*memory);
    captured.asideMemory = step_->aside_->address();
    return {};
  }
  PUMPGRAPH_TRY(driver_.health());
  return doWithoutAsides(memory.error().message);
}

Status Adoption::doWithoutAsides(const std::string &why) {
  CapturedStep &captured = step_->captured_;
  for (Node &node : captured.description.nodes)
    forgetAsides(node);
  captured.notes.push_back("nodes that update something besides are not run again: " + why);
  captured.asideMemory = 0;
  step_->aside_.reset();
  return heap_.flushCache();
}

/// A kernel is tried in the copy of the graph. A fill or copy is not: the driver looks at the memory that these name,
/// which may not be there yet.
Expected<std::string> Adoption::obstacleToRepetition(std::size_t position) const {
  const LiftedNode &lifted = step_->lifted_.nodes[position];
  // Nobody sees who else writes what is not the session's, before a repetition reads it.
  if (!lifted.outside.empty() || !lifted.hostSources.empty() ||
      !outsideOperands(driver_, std::span(&lifted, 1), *session_.addresses_).empty())
    return "they touch memory that is not the session's";
  if (lifted.kind != NodeKind::Kernel)
    return "";
  const CUgraphNode original = step_->originalNodes_[position];
  const Expected<CUgraphNode> clone = cloneNode(driver_, step_->original_, original, session_.context_);
  if (!clone) {
    PUMPGRAPH_TRY(driver_.health());
    return fmt::format("the driver does not copy {} ({})",
                       isCooperative(driver_, original) ? "a cooperative launch" : "it", clone.error().message);
  }
  const Expected<std::string> difference = differenceOfClone(driver_, *clone, original);
  PUMPGRAPH_TRY(driver_.graphDestroyNode(*clone));
  if (!difference)
    return tl::unexpected<Error>(difference.error());
  return difference->empty() ? "" : "of the copy that the driver makes, " + *difference;
}

Status Adoption::replaceFillsBeside(const CompiledPlan &plan) {
  LiftedGraph &lifted = step_->lifted_;
  const std::vector<Node> &nodes = plan.lowered.nodes;
  const bool copies = std::any_of(nodes.begin(), nodes.end(), [](const Node &node) { return isCopy(node.kind); });
  const bool fills = std::any_of(lifted.nodes.begin(), lifted.nodes.end(),
                                 [](const LiftedNode &node) { return node.kind == NodeKind::Memset; });
  const bool hosts = std::any_of(plan.lowered.buffers.begin(), plan.lowered.buffers.end(),
                                 [](const Buffer &buffer) { return !buffer.hosted.empty(); });
  const bool slowsCopies = copies && !driver_.kernelQueues.areFew() && hasBranches(lifted);
  if (slowsCopies)
    step_->captured_.notes.push_back(fmt::format(
        "copies are up to a tenth slower than they could be: branches of the step wait in {} queues of the device; set "
        "{}={}, or create the session before anything else uses CUDA",
        driver_.kernelQueues.count, KernelQueues::variable, KernelQueues::few));
  if (fills_ || !fills || !(hosts || slowsCopies))
    return {};
  const Expected<const FillKernel *> kernel = session_.fillKernel();
  if (!kernel) {
    PUMPGRAPH_TRY_WHILE(checkFills(driver_, step_->captured_.nodes, plan.lowered), "{}", kernel.error().message);
    if (slowsCopies)
      step_->captured_.notes.push_back("memset nodes in branches stay, and make copies slower: " +
                                       kernel.error().message);
    return {};
  }
  fills_ = std::make_unique<GraphEditor>(driver_, graph_, session_.context_);
  PUMPGRAPH_TRY(replaceFills(*fills_, driver_, **kernel, *session_.addresses_, lifted));
  for (std::size_t position = 0; position < lifted.nodes.size(); ++position)
    step_->captured_.nodes[position] = lifted.nodes[position].handle;
  return {};
}

Status Adoption::rewriteManaged(const Compiler &compiler) {
  for (const std::string &refusal : step_->captured_.refusals)
    step_->captured_.notes.push_back("what this node touches is moved by faults: " + refusal);
  if (!accessesAreKnown_)
    step_->captured_.notes.push_back(
        step_->captured_.refusals.empty()
            ? "nothing is discarded: without calibration nobody knows what kernels reach by addresses in memory"
            : "nothing is discarded: not every access of the step is known");
  (void)step_->keepOriginal(); // some graphs that are fine here cannot be copied; they cannot be validated then
  Rewriting rewriting(*step_, compiler);
  Expected<std::vector<CompiledPlan>> plans = planManaged(rewriting);
  if (!plans)
    return tl::unexpected<Error>(plans.error());
  const std::string costs = plans->front().savedTimes != 0 ? "saved times"
                            : nodesAreTimed_               ? "times of nodes before the plan"
                                                           : "static estimates";
  PUMPGRAPH_TRY(ManagedTrials(*step_, rewriting, costs).run(std::move(*plans)));
  step_->captured_.warnings = foreseeThrashing(
      step_->plan_.lowered, unplanned(), {session_.frames_->budgetFrames() * pageBytes, session_.deviceFreeBytes_});
  return backResults();
}

Expected<std::vector<CompiledPlan>> Adoption::planManaged(Rewriting &rewriting) {
  ManagedKnowledge known{accessesAreKnown_, options_.prefetching, hostingChoices()};
  Expected<std::vector<CompiledPlan>> first = rewriting.planManaged(options_.costsIr, known);
  if (!first)
    return first;
  first->front().name = "the first plan";
  const bool isAsked = options_.hosting == HostingChoice::Measured ||
                       (options_.hosting == HostingChoice::Automatic && accessesAreKnown_);
  if (!isAsked || !first->front().hasOperations())
    return first;
  std::vector<std::string> &notes = step_->captured_.notes;
  HostedTimes times(*step_);
  std::string obstacle = times.obstacle();
  if (obstacle.empty()) {
    const Stopwatch watch;
    Expected<std::string> measured = times.measure(known.hosting);
    if (!measured)
      return inContext(measured.error(), fmt::format("timing the nodes of \"{}\"", options_.name));
    obstacle = std::move(*measured);
    step_->times_.hostedMs = watch.milliseconds();
    nodesAreTimed_ = times.hasDeviceTimes();
  }
  if (!obstacle.empty()) {
    notes.push_back("nobody knows what of the step would be faster in host memory: " + obstacle);
    return first;
  }
  Expected<std::vector<CompiledPlan>> timed = rewriting.planManaged(options_.costsIr, known);
  if (timed)
    return timed;
  notes.push_back("there is no plan by the times of nodes with operands in host memory: " + timed.error().message);
  return first;
}

Hosting Adoption::hostingChoices() const {
  const CapturedStep &captured = step_->captured_;
  const std::size_t count = captured.blocks.size();
  Hosting hosting;
  hosting.choices.assign(count, Hosting::WhereNoRoom);
  hosting.stays.resize(count);
  std::vector<bool> isShared(count, false);
  for (const std::unique_ptr<Step> &other : session_.steps_) {
    if (!other->isManaged())
      continue;
    const std::vector<BlockId> &blocks = other->captured_.blocks;
    for (BufferIndex buffer = 0; buffer < count; ++buffer) {
      const auto found = std::find(blocks.begin(), blocks.end(), captured.blocks[buffer]);
      if (found == blocks.end())
        continue;
      isShared[buffer] = true;
      const Buffer &theirs = other->plan_.lowered.buffers[static_cast<std::size_t>(found - blocks.begin())];
      for (const Range &range : theirs.hosted)
        hosting.stays[buffer] = with(hosting.stays[buffer], range);
    }
  }
  std::vector<bool> isCopied(count, false);
  for (const Node &node : captured.description.nodes)
    if (node.kind == NodeKind::Memcpy)
      for (const Access &access : node.accesses)
        isCopied[access.buffer] = true;
  for (BufferIndex buffer = 0; buffer < count; ++buffer)
    if (!captured.description.buffers[buffer].isPrivate)
      hosting.stays[buffer].clear();                 // it cannot be hosted for this one
    else if (!isShared[buffer] && !isCopied[buffer]) // operands of copies need the device
      hosting.choices[buffer] = Hosting::WhereFaster;
    else if (!hosting.stays[buffer].empty())
      hosting.choices[buffer] = Hosting::Always;
  return hosting;
}

std::vector<Unplanned> Adoption::unplanned() const {
  const CapturedStep &captured = step_->captured_;
  // A node that cannot be seen into may touch anything.
  const std::vector<BlockId> candidates = captured.refusals.empty() ? captured.besides : heap_.blocks();
  const std::set<BlockId> planned(captured.blocks.begin(), captured.blocks.end());
  std::vector<Unplanned> others;
  for (const BlockId id : candidates)
    if (const Block &block = heap_.block(id); !planned.contains(id) && block.hasLiveMember())
      others.push_back({heap_.nameAt(block.address), block.bytes()});
  return others;
}

Status Adoption::rewriteAlone(Rewriting &rewriting) {
  Status done = putOwnPlanInForce(rewriting);
  if (!done && rewriting.hasRepeated() && !session_.isLost(step_->captured_.blocks)) {
    step_->mayRepeat_ = false;
    if (putOwnPlanInForce(rewriting)) {
      step_->captured_.notes.push_back("no node runs again: " + done.error().message);
      return {};
    }
  }
  if (done || !rewriting.hasRenamed() || session_.isLost(step_->captured_.blocks))
    return done;
  // Addresses may be short, or some kernel takes no other parameters.
  for (Buffer &buffer : step_->captured_.description.buffers)
    buffer.isRenamable = false;
  if (!putOwnPlanInForce(rewriting))
    return done;
  step_->captured_.notes.push_back("every buffer keeps its address: " + done.error().message);
  return {};
}

Status Adoption::putOwnPlanInForce(Rewriting &rewriting) {
  Expected<CompiledPlan> plan = ownPlan_ ? std::move(*std::exchange(ownPlan_, std::nullopt))
                                         : rewriting.plan(step_->otherFrames(), options_.costsIr);
  if (!plan && plan.error().status == PUMPGRAPH_UNPLANNABLE && step_->aside_) {
    PUMPGRAPH_TRY(doWithoutAsides("the budget has no room for the memory that they would have"));
    plan = rewriting.plan(step_->otherFrames(), options_.costsIr);
  }
  if (!plan)
    return tl::unexpected<Error>(plan.error());
  const Expected<std::shared_ptr<Residence>> residence = rewriting.prepare(*plan);
  if (!residence)
    return tl::unexpected<Error>(residence.error());
  PUMPGRAPH_TRY(replaceFillsBeside(*plan));
  return rewriting.putInForce(std::move(*plan), *residence, Keep::EveryBlock);
}

Expected<std::string> Adoption::shareBoundary(Rewriting &rewriting, const Compiler &compiler) {
  CapturedStep alone = step_->captured_;
  const auto giveUp = [&](std::string why) {
    alone.nodes = step_->captured_.nodes; // fills may be others by now
    step_->captured_ = std::move(alone);
    step_->bystanders_ = 0;
    together_.reset();
    return why;
  };
  Expected<SharingPlan> shared = planInto(rewriting, *neighbour_->residence_);
  if (!shared && shared.error().status == PUMPGRAPH_UNPLANNABLE && options_.plansOthersAgain &&
      options_.boundary == BoundaryChoice::Shared) {
    const std::string why = shared.error().message;
    step_->captured_ = alone;
    shared = planAgainInto(rewriting, compiler);
    if (!shared)
      return giveUp(
          fmt::format("{}; nor is there one if other steps are planned again: {}", why, shared.error().message));
  }
  if (!shared)
    return giveUp(shared.error().message);
  const CompiledPlan &plan = shared->plan;
  // Near the bound no plan of its own can be much better.
  if (options_.boundary == BoundaryChoice::Automatic && plan.predictedUs() > mostSlowdown * plan.boundUs()) {
    CapturedStep withBystanders = std::exchange(step_->captured_, alone);
    Expected<CompiledPlan> own = rewriting.plan(step_->otherFrames(), options_.costsIr);
    alone = step_->captured_; // with the notes about the costs
    if (own && plan.predictedUs() > mostSlowdown * own->predictedUs()) {
      ownPlan_ = std::move(*own);
      return giveUp(fmt::format("the step would take {:.1f} ms instead of {:.1f}", plan.predictedUs() * 1e-3,
                                ownPlan_->predictedUs() * 1e-3));
    }
    step_->captured_ = std::move(withBystanders);
  }
  const Expected<std::shared_ptr<Residence>> residence = rewriting.prepare(shared->plan, std::move(shared->others));
  if (!residence)
    return giveUp(residence.error().message);
  PUMPGRAPH_TRY(replaceFillsBeside(shared->plan));
  Status done = together_ ? together_->take(*residence) : Status{};
  if (done)
    done = rewriting.putInForce(std::move(shared->plan), *residence, Keep::EveryBlock);
  if (done)
    return std::string();
  if (const Status back = returnOthersPlans(); !back)
    return tl::unexpected<Error>(inContext(back.error(), "after: " + done.error().message));
  if (session_.isLost(step_->captured_.blocks))
    return tl::unexpected<Error>(done.error());
  return giveUp(done.error().message);
}

std::vector<Step *> Adoption::neighbours() const {
  std::vector<Step *> steps;
  for (const std::unique_ptr<Step> &step : session_.steps_)
    if (step->residence_ == neighbour_->residence_)
      steps.push_back(step.get());
  return steps;
}

Expected<Adoption::SharingPlan> Adoption::planInto(Rewriting &rewriting, const Residence &theirs) {
  step_->bystanders_ = PlannedTogether::addBystanders(step_->captured_, neighbours(), theirs);
  std::unique_ptr<Residence> others = theirs.forStep(step_->captured_.blocks);
  Expected<CompiledPlan> plan = rewriting.plan(step_->otherFrames(), options_.costsIr, others.get());
  if (!plan)
    return tl::unexpected<Error>(plan.error());
  return SharingPlan{std::move(*plan), std::move(others)};
}

Expected<Adoption::SharingPlan> Adoption::planAgainInto(Rewriting &rewriting, const Compiler &compiler) {
  const std::vector<Step *> others = neighbours();
  for (const Step *other : others)
    PUMPGRAPH_TRY(other->checkMemory());
  together_.emplace(others, *step_, compiler);
  PUMPGRAPH_TRY(together_->plan());
  return planInto(rewriting, together_->residence());
}

Status Adoption::returnOthersPlans() {
  return together_ && together_->isTaken() ? together_->giveBack() : Status{};
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
  PUMPGRAPH_TRY(heap_.takeStandInsAway(stoodIn_));
  if (before_) // first, so that it finds the memory it had
    PUMPGRAPH_TRY(session_.putInForce(*before_));
  step_->plan_.otherFrames = step_->otherFrames();
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
  if (together_) {
    together_->keep();
    step_->plannedAgain_ = together_->names();
  }
  step_->ownsGraph_ = options_.ownsGraph;
  step_->backendWhy_ = backendWhy();
  if (fills_)
    fills_->commit();
  if (step_->rewritten() && !options_.keepFirstPlan)
    if (const Expected<const Compiler *> compiler = session_.compiler())
      step_->watchReplays(**compiler);
  step_->writeReport();
  return std::move(step_);
}

} // namespace pumpgraph::runtime
