// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/Replanner.h"

#include "runtime/lower/ReplaceFills.h"
#include "runtime/measure/KeptValues.h"
#include "runtime/measure/MeasuredTimes.h"
#include "runtime/session/Report.h"
#include "runtime/state/Budget.h"
#include "runtime/state/Exchange.h"
#include "runtime/state/Values.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <system_error>
#include <utility>

namespace pumpgraph::runtime {
namespace {

/// Replays of each kind that are timed, after one that warms up.
constexpr std::size_t timedReplays = 3;
/// What a first prediction may be off by, of what was measured.
constexpr double toleratedMiss = 0.1;
/// Two plans whose steps differ by less are as good as each other; then the one made from more measurements stays, for
/// more is known of it.
constexpr double noticeablySlower = 1.005;
/// A plan that is so much faster than all before may not be the last to be.
constexpr double worthGoingOn = 1.01;
/// How often it is planned again where the time of nodes with hosted operands is still mistaken, or what was learned of
/// them made the step faster.
constexpr int mostPlans = 4;
/// What a prediction may be off by that knows of the node times.
constexpr double toleratedMistake = 0.02;
/// After so many plans that came too late one is made while replays wait.
constexpr int mostOutdated = 2;
/// Replays that a step waits for the trial of another step's plan, which may take no part in the program any more.
constexpr int mostWaits = 64;
/// The source of their node times.
constexpr std::string_view measuredHere = "measured on the rewritten step";

/// Whether a plan with hosted pages is so far from its prediction that another one may do better.
bool isMistaken(const CompiledPlan &plan, double measuredUs) {
  return hostsOperands(plan) && std::abs(measuredUs - plan.predictedUs()) > toleratedMistake * measuredUs;
}

} // namespace

Replanner::Replanner(StepState &step, const Compiler &compiler)
    : step_(step), session_(step.session), driver_(*step.session.driver), rewriting_(step, compiler),
      watch_(std::make_unique<ReplayWatch>(driver_, timedReplays)) {}

std::unique_ptr<Replanner> Replanner::onMiss(StepState &step, const Compiler &compiler) {
  auto made = std::make_unique<Replanner>(step, compiler);
  made->onlyOnMiss_ = true;
  return made;
}

Replanner::~Replanner() {
  static_cast<void>(takeClocksOut());
  if (end_)
    driver_.eventDestroy.raw(end_);
}

Status Replanner::beforeLaunch(CUstream stream) {
  PUMPGRAPH_TRY(advance());
  return watch_ ? watch_->beforeLaunch(stream) : Status{};
}

Status Replanner::afterLaunch(CUstream stream) {
  if (watch_)
    return watch_->afterLaunch(stream);
  if (!clocks_)
    return {};
  if (!end_)
    PUMPGRAPH_TRY(driver_.eventCreate(&end_, CU_EVENT_DISABLE_TIMING));
  PUMPGRAPH_TRY(driver_.eventRecord(end_, stream));
  ++launches_;
  return {};
}

Status Replanner::advance() {
  if (stage_ == Stage::Planning)
    return goOnPlanning();
  if (watch_) {
    if (!watch_->isFull())
      return {};
    const Expected<std::optional<double>> us = watch_->medianUs();
    if (!us)
      return tl::unexpected<Error>(us.error());
    if (!*us)
      return {}; // still running
    watch_.reset();
    step_.history.plans.back().measuredUs = *us;
    return replaysAreTimed(**us);
  }
  if (!clocks_ || launches_ == 0)
    return {};
  PUMPGRAPH_TRY_WHILE(driver_.eventSynchronize(end_), "waiting for a timed replay");
  if (launches_ > 1) // the first one warms up
    PUMPGRAPH_TRY(clocks_->read());
  if (launches_ <= timedReplays)
    return {};
  std::vector<NodeClocks::Run> runs = clocks_->runs();
  PUMPGRAPH_TRY(takeClocksOut());
  if (stage_ == Stage::NodesTogether)
    return nodesAreTimed(runs);
  apart_ = std::move(runs);
  return movesAnything(step_) ? timeNodes(Stage::NodesTogether) : nodesAreTimed({});
}

Status Replanner::replaysAreTimed(double us) {
  if (plans_ == 0) {
    const double predictedUs = step_.history.plans.back().predictedUs;
    if (onlyOnMiss_) {
      if (std::abs(us - predictedUs) <= toleratedMiss * us) {
        finish();
        return {};
      }
      why_ = fmt::format("the first plan's step took {:.1f} ms instead of {:.1f}", us * 1e-3, predictedUs * 1e-3);
    }
    fastestUs_ = us;
    return timeNodes(Stage::NodesApart);
  }
  const PlanRecord &plan = step_.history.plans.back();
  stays_ = us <= fastestUs_ * noticeablySlower;
  const bool isFaster = us * worthGoingOn < fastestUs_;
  fastestUs_ = std::min(fastestUs_, us);
  if (plans_ == 1 || stays_ || us < *result_.after.measuredUs)
    result_.after = plan;
  goesOn_ = isMistaken(step_.plan, us) || (isFaster && hostsOperands(step_.plan));
  if (!goesOn_)
    return settle();
  Status begun = timeNodes(Stage::NodesApart);
  if (begun || !checkMemory(step_))
    return begun;
  step_.captured.notes.push_back("measuring once more failed: " + begun.error().message);
  goesOn_ = false;
  return settle();
}

Status Replanner::nodesAreTimed(const std::vector<NodeClocks::Run> &together) {
  const std::vector<double> times = nodeTimes(step_, apart_, together, *step_.history.plans.back().measuredUs);
  takeMeasured(step_.captured.description, step_.planning.knownAccesses, step_.plan, times);
  result_.timedNodes = times.size();
  if (const Status predicted = predictAgain(); !predicted) {
    if (plans_ == 0)
      return predicted;
    step_.captured.notes.push_back("predicting once more failed: " + predicted.error().message);
    goesOn_ = false;
  }
  if (plans_ != 0)
    return settle();
  result_.before = step_.history.plans.back();
  result_.keptFirst = true;
  return planAgain();
}

/// All is known of the last plan that is going to be.
Status Replanner::settle() {
  if (!stays_ && canReturn())
    PUMPGRAPH_TRY(returnTo(planBefore_));
  else
    result_.keptFirst = false;
  if (goesOn_ && plans_ < mostPlans)
    return planAgain();
  session_.messages.add(Level::Info,
                        fmt::format("step \"{}\" was planned again ({}): {:.1f} ms a replay, {:.1f} before",
                                    step_.name(), why_, fastestUs_ * 1e-3, *result_.before.measuredUs * 1e-3));
  finish();
  return {};
}

Status Replanner::timeNodes(Stage stage) {
  clocks_ = std::make_unique<NodeClocks>(step_, step_.graph.handle);
  launches_ = 0;
  graphIsChanging(step_);
  Status added =
      clocks_->add(stage == Stage::NodesApart ? NodeClocks::Where::AroundEach : NodeClocks::Where::WhereNodesWait);
  if (!added) {
    const Status out = takeClocksOut();
    return out ? inContext(added.error(), "putting clocks between the nodes") : out;
  }
  stage_ = stage;
  return {};
}

/// Where this fails, what is left of the clocks stays in the graph for good, and replays refuse.
Status Replanner::takeClocksOut() {
  if (!clocks_)
    return {};
  graphIsChanging(step_);
  const Status out = clocks_->undo();
  clocks_.reset();
  if (!out)
    step_.graph.edits.reset();
  PUMPGRAPH_TRY_WHILE(out, "taking clocks out of the graph of \"{}\"", step_.name());
  return {};
}

/// What the plan in force should take by what has been measured on it. Times over hosted pages are that of the step
/// already.
Status Replanner::predictAgain() {
  std::vector<Node> &nodes = step_.captured.description.nodes;
  PlanRecord &plan = step_.history.plans.back();
  for (const bool isLast : {hostsOperands(step_.plan), true}) {
    const Expected<double> us = rewriting_.predictUs(withMeasured(step_.plan.lowered, step_.captured.description));
    if (!us)
      return tl::unexpected<Error>(us.error());
    plan.predictedAgainUs = *us;
    if (isLast)
      break;
    const double gapUs = gapBetweenNodesUs(*plan.measuredUs, *us, nodes.size());
    for (Node &node : nodes)
      node.costUs += gapUs; // one without a time stays without
  }
  return {};
}

Status Replanner::planAgain() {
  ++plans_;
  staysWithPlan(); // the slower of two goes: its pinned pool makes room for the next one's
  return plan();
}

Status Replanner::plan() {
  if (onlyOnMiss_ && mustWaitForSharers() && waits_ < mostWaits) {
    ++waits_;
    stage_ = Stage::Planning;
    return {};
  }
  return planned(plansAside() ? beginPlanning() : tryPlanAgain(std::string(measuredHere)));
}

Status Replanner::planned(Status made) {
  if (made || plans_ == 1 || !checkMemory(step_))
    return made;
  step_.captured.notes.push_back("planning once more failed: " + made.error().message);
  finish();
  return {};
}

/// A shared boundary can change with each of its steps, and a plan asked for is waited for.
bool Replanner::plansAside() const {
  return session_.options.plansAside && onlyOnMiss_ && outdated_ < mostOutdated && sharers(step_).empty();
}

bool Replanner::canReturn() const {
  return otherMemory_ && step_.memory.residence == memory_.lock();
}

bool Replanner::mustWaitForSharers() const {
  const std::vector<StepState *> others = sharers(step_);
  return std::any_of(others.begin(), others.end(), [](const StepState *step) {
    return step->planning.replanner && step->planning.replanner->canReturn();
  });
}

Status Replanner::settleMemory() {
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device before planning again");
  return session_.memory.heap->flushCache();
}

/// Has the plan made on a thread, or by a later call where the thread has the plan of another step to make.
Status Replanner::beginPlanning() {
  stage_ = Stage::Planning;
  if (session_.planJob && !session_.planJob->isDone())
    return {};
  PUMPGRAPH_TRY(settleMemory());
  Expected<PlanRequest> request = rewriting_.request(otherFrames(step_), "");
  if (!request)
    return tl::unexpected<Error>(request.error());
  try {
    job_ = std::make_shared<PlanJob>(rewriting_.compiler(), std::move(*request));
  } catch (const std::system_error &) { // there is no thread
    return tryPlanAgain(std::string(measuredHere));
  }
  session_.planJob = job_;
  return {};
}

Status Replanner::goOnPlanning() {
  if (!job_)
    return plan();
  if (!job_->isDone())
    return {};
  const std::shared_ptr<PlanJob> job = std::exchange(job_, nullptr);
  if (session_.planJob == job)
    session_.planJob.reset();
  if (const Status settled = settleMemory(); !settled)
    return planned(settled);
  if (isCurrent(job->request()))
    return planned(change(rewriting_.take(job->request(), job->take()), nullptr, std::string(measuredHere)));
  ++outdated_;
  return plan();
}

/// The captured step and its node times change with stop() alone.
bool Replanner::isCurrent(const PlanRequest &request) const {
  return sharers(step_).empty() && session_.memory.frames->budgetFrames() == request.budgetFrames &&
         otherFrames(step_) <= request.otherFrames;
}

/// Plans with what has been measured, and puts that in force in place of what is.
Status Replanner::tryPlanAgain(const std::string &costs) {
  PUMPGRAPH_TRY(settleMemory());
  std::unique_ptr<Residence> others; // a boundary that others rely on stays
  if (!sharers(step_).empty())
    others = step_.memory.residence->forStep(step_.plan.blocksOf(step_.captured));
  Expected<CompiledPlan> next = rewriting_.plan(otherFrames(step_), "", others.get());
  return change(std::move(next), std::move(others), costs);
}

Status Replanner::change(Expected<CompiledPlan> next, std::unique_ptr<Residence> others, const std::string &costs) {
  if (!next)
    return tl::unexpected<Error>(next.error());
  // A plan without hosted pages may have left memset nodes where they are.
  PUMPGRAPH_TRY(checkFills(driver_, step_.captured.nodes, next->lowered));
  Expected<std::shared_ptr<Residence>> memory = rewriting_.prepare(*next, std::move(others));
  if (!memory)
    return tl::unexpected<Error>(memory.error());
  planBefore_ = step_.history.plans.back();
  PUMPGRAPH_TRY(exchange(std::move(*next), std::move(*memory)));
  beginPlan(step_, costs, why_);
  writeReport(step_);
  stage_ = Stage::Replays;
  watch_ = std::make_unique<ReplayWatch>(driver_, timedReplays);
  return {};
}

/// Puts another plan in force and keeps the one that was. If that fails, the one that was is in force again.
// NOLINTNEXTLINE(performance-unnecessary-value-param): a reference could be to otherMemory_, which changes meanwhile
Status Replanner::exchange(CompiledPlan plan, std::shared_ptr<Residence> memory) {
  CompiledPlan old = step_.plan;
  const std::uint64_t budgetFrames = session_.memory.frames->budgetFrames();
  allowFramesBeforeLook(session_); // values leave the plan that was through frames that it has
  Expected<std::shared_ptr<Residence>> oldMemory = rewriting_.takeBack(Keep::Values);
  session_.memory.frames->setBudget(budgetFrames);
  if (!oldMemory)
    return tl::unexpected<Error>(oldMemory.error());
  Status done = rewriting_.putInForce(std::move(plan), memory, Keep::Values);
  if (done) {
    replaceResidence(session_, *oldMemory, memory);
    memory_ = memory;
    otherPlan_ = std::move(old);
    otherMemory_ = std::move(*oldMemory);
    return {};
  }
  allowFramesBeforeLook(session_);
  const Status back = rewriting_.putInForce(std::move(old), *oldMemory, Keep::Values);
  if (back)
    return done;
  step_.memory.residence = std::move(*oldMemory); // without its copies in the graph: replays refuse
  return inContext(back.error(),
                   fmt::format("putting the plan that was back in force after: {}", done.error().message));
}

/// To the plan before the last.
Status Replanner::returnTo(const PlanRecord &before) {
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device before returning to the faster plan");
  PUMPGRAPH_TRY_WHILE(exchange(std::move(otherPlan_), std::move(otherMemory_)), "returning to the faster plan");
  step_.history.plans.push_back(before);
  step_.history.plans.back().why = "the plan made from measured node times is slower";
  writeReport(step_);
  return {};
}

Status Replanner::planNow(std::string why) {
  why_ = std::move(why);
  ++plans_;
  const Status done = tryPlanAgain(std::string(step_.history.plans.back().costs));
  watch_.reset();
  finish();
  return done;
}

Status Replanner::stop() {
  const bool isUntimed = plans_ != 0 && watch_;
  job_.reset(); // its thread ends by itself, and the session waits for that
  finish();
  watch_.reset();
  PUMPGRAPH_TRY_WHILE(driver_.ctxSynchronize(), "waiting for the device before clocks are taken out");
  PUMPGRAPH_TRY(takeClocksOut());
  if (!isUntimed || !canReturn())
    return {};
  PUMPGRAPH_TRY_WHILE(exchange(std::move(otherPlan_), std::move(otherMemory_)), "returning to the plan before");
  step_.history.plans.pop_back();
  return {};
}

// ---- the step's side
// -------------------------------------------------------------------------------------------------

void watchReplays(StepState &step, const Compiler &compiler) {
  step.planning.replanner = Replanner::onMiss(step, compiler);
}

Status stopReplanning(StepState &step) {
  if (!step.planning.replanner)
    return {};
  const Status stopped = step.planning.replanner->stop();
  step.planning.replanner.reset();
  writeReport(step);
  return stopped;
}

void fitToBudget(StepState &step) {
  if (!std::exchange(step.planning.exceedsBudget, false))
    return;
  const bool wasWatched = step.planning.replanner != nullptr;
  Status done = stopReplanning(step);
  if (const Expected<const Compiler *> compiler = compilerOf(step.session); compiler && done) {
    done = Replanner(step, **compiler).planNow("others have taken of the budget");
    if (wasWatched)
      watchReplays(step, **compiler);
  }
  if (!done) {
    allowFramesBeforeLook(step.session);
    warn(step, "the step keeps a plan that exceeds the budget: " + done.error().message);
  }
  writeReport(step);
}

/// Whatever goes wrong, the plan that was goes on; the replay says so if even that failed.
void goOnReplanning(StepState &step, CUstream stream) {
  if (!step.planning.replanner)
    return;
  if (const Status done = step.planning.replanner->beforeLaunch(stream); !done) {
    step.captured.notes.push_back("planning again failed: " + done.error().message);
    if (const Status stopped = step.planning.replanner->stop(); !stopped)
      step.captured.notes.push_back(stopped.error().message);
    step.planning.replanner.reset();
    writeReport(step);
  } else if (step.planning.replanner->isDone()) {
    step.planning.replanner.reset();
    writeReport(step);
  }
}

/// Replays the step, from the values that are kept each time, until `replanner` has seen enough.
static Status replayFor(StepState &step, Replanner &replanner, KeptValues &values) {
  const Driver &driver = *step.session.driver;
  while (true) {
    PUMPGRAPH_TRY_WHILE(values.rewind(), "putting the state back before a run"); // before a clock starts
    PUMPGRAPH_TRY(replanner.beforeLaunch(step.session.device.stream));
    if (replanner.isDone())
      return {};
    PUMPGRAPH_TRY(instantiate(step));
    PUMPGRAPH_TRY_WHILE(driver.graphLaunch(step.graph.exec, step.session.device.stream), "replaying to measure");
    PUMPGRAPH_TRY(replanner.afterLaunch(step.session.device.stream));
    PUMPGRAPH_TRY_WHILE(driver.streamSynchronize(step.session.device.stream), "replaying to measure");
  }
}

Expected<Replanning> replan(StepState &step) {
  const Expected<const Compiler *> compiler = compilerOf(step.session);
  if (!compiler)
    return tl::unexpected<Error>(compiler.error());
  KeptValues values(step);
  PUMPGRAPH_TRY(values.keep());
  Replanner replanner(step, **compiler);
  Status done = replayFor(step, replanner, values);
  if (!done)
    if (const Status stopped = replanner.stop(); !stopped)
      done = inContext(stopped.error(), "after: " + done.error().message);
  const Status restored = checkMemory(step) ? values.restore() : Status{};
  writeReport(step);
  PUMPGRAPH_TRY(done); // first: what fails afterwards follows from it
  PUMPGRAPH_TRY_WHILE(restored, "restoring the values after measuring");
  return replanner.result();
}

} // namespace pumpgraph::runtime
