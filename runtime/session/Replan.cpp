// SPDX-License-Identifier: Apache-2.0
// Plans a rewritten step again with node times measured on it.
#include "runtime/lower/ReplaceFills.h"
#include "runtime/session/MeasuredTimes.h"
#include "runtime/session/Measuring.h"
#include "runtime/session/Rewriting.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace pumpgraph::runtime {
namespace {

constexpr int repeats = 5;
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

/// Whether a plan with hosted pages is so far from its prediction that another one may do better.
bool isMistaken(const CompiledPlan &plan, double measuredUs) {
  return hostsOperands(plan) && std::abs(measuredUs - plan.predictedUs()) > toleratedMistake * measuredUs;
}

} // namespace

/// One attempt. Whatever happens, the buffers have the values they had, and a plan is in force at the end if the driver
/// lets us.
class Replanner {
public:
  Replanner(Step &step, const Compiler &compiler)
      : step_(step), session_(step.session_), rewriting_(step, compiler), measuring_(step) {}

  Expected<Replanning> run(const std::string &why) {
    PUMPGRAPH_TRY(measuring_.keepValues());
    PUMPGRAPH_TRY(restoringAfter([&] { return measureReplay(); }, [&] { return measureNodes(); }));
    PUMPGRAPH_TRY(predictAgain());
    result_.before = step_.plans_.back();
    result_.keptFirst = true;
    double fastestUs = *result_.before.measuredUs;
    for (int plan = 1;; ++plan) {
      const PlanRecord inForce = step_.plans_.back();
      if (Status made = planAgain(why); !made) {
        if (plan == 1 || !isAsItWas())
          return tl::unexpected<Error>(std::move(made).error());
        step_.captured_.notes.push_back("planning once more failed: " + made.error().message);
        return result_;
      }
      const double measuredUs = *step_.plans_.back().measuredUs;
      const bool stays = measuredUs <= fastestUs * noticeablySlower;
      const bool isFaster = measuredUs * worthGoingOn < fastestUs;
      fastestUs = std::min(fastestUs, measuredUs);
      if (plan == 1 || stays || measuredUs < *result_.after.measuredUs)
        result_.after = step_.plans_.back();
      bool goesOn = isMistaken(step_.plan_, measuredUs) || (isFaster && hostsOperands(step_.plan_));
      if (goesOn)
        if (Status measured = restoringAfter([&] { return measureNodes(); }, [&] { return predictAgain(); });
            !measured) {
          if (!isAsItWas())
            return tl::unexpected<Error>(std::move(measured).error());
          step_.captured_.notes.push_back("measuring once more failed: " + measured.error().message);
          goesOn = false;
        }
      goesOn = goesOn && plan < mostPlans;
      if (stays)
        result_.keptFirst = false;
      else
        PUMPGRAPH_TRY(returnTo(inForce));
      if (!goesOn)
        return result_;
    }
  }

private:
  /// Measures, one thing after the other until one fails, and then gives the buffers the values that they had.
  template <typename... Measure> Status restoringAfter(const Measure &...measure) {
    Status done;
    static_cast<void>((... && static_cast<bool>(done = measure())));
    Status restored = measuring_.restoreValues();
    PUMPGRAPH_TRY(done); // first: what fails afterwards follows from it
    PUMPGRAPH_TRY_WHILE(restored, "restoring the values after measuring");
    return {};
  }

  /// Whether a plan is in force after a failure, with the values that there were.
  bool isAsItWas() { return step_.checkMemory() && measuring_.restoreValues(); }

  Status measureReplay() {
    const Expected<double> stepUs = measuring_.timeReplay(repeats);
    if (!stepUs)
      return tl::unexpected<Error>(stepUs.error());
    step_.plans_.back().measuredUs = *stepUs;
    return {};
  }

  Status measureNodes() {
    const Expected<std::vector<double>> costs = measuring_.timeNodes(repeats, *step_.plans_.back().measuredUs);
    if (!costs)
      return tl::unexpected<Error>(costs.error());
    takeMeasured(step_.captured_.description, step_.knownAccesses_, step_.plan_, *costs);
    result_.timedNodes = costs->size();
    return {};
  }

  /// What the plan in force should take by what has been measured on it.
  Status predictAgain() {
    const Expected<double> us = rewriting_.predictUs(withMeasured(step_.plan_.lowered, step_.captured_.description));
    if (!us)
      return tl::unexpected<Error>(us.error());
    step_.plans_.back().predictedAgainUs = *us;
    return {};
  }

  /// Plans with what has been measured, puts that in force in place of what is, and times its replay.
  Status planAgain(const std::string &why) {
    otherPlan_ = {}; // the slower of two: its pinned pool makes room for the next one's
    otherMemory_.reset();
    PUMPGRAPH_TRY(session_.heap_->flushCache());
    std::unique_ptr<Residence> others; // a boundary that others rely on stays
    if (!step_.sharers().empty())
      others = step_.residence_->forStep(step_.plan_.blocksOf(step_.captured_));
    Expected<CompiledPlan> next = rewriting_.plan(step_.otherFrames(), "", others.get());
    if (!next)
      return tl::unexpected<Error>(next.error());
    // A plan without hosted pages may have left memset nodes where they are.
    PUMPGRAPH_TRY(checkFills(*session_.driver_, step_.captured_.nodes, next->lowered));
    Expected<std::shared_ptr<Residence>> memory = rewriting_.prepare(*next, std::move(others));
    if (!memory)
      return tl::unexpected<Error>(memory.error());
    PUMPGRAPH_TRY(exchange(std::move(*next), std::move(*memory)));
    step_.beginPlan("measured on the rewritten step", why);
    Status done = measureReplay();
    const Status restored = measuring_.restoreValues();
    if (!done)
      return forgetLast(std::move(done).error());
    PUMPGRAPH_TRY_WHILE(restored, "restoring the values after measuring");
    return {};
  }

  /// Puts another plan in force and keeps the one that was. If that fails, the one that was is in force again.
  Status exchange(CompiledPlan plan, std::shared_ptr<Residence> memory) {
    CompiledPlan old = step_.plan_;
    Expected<std::shared_ptr<Residence>> oldMemory = rewriting_.takeBack(Keep::Values);
    if (!oldMemory)
      return tl::unexpected<Error>(oldMemory.error());
    Status done = rewriting_.putInForce(std::move(plan), memory, Keep::Values);
    if (done) {
      session_.replaceResidence(*oldMemory, memory);
      otherPlan_ = std::move(old);
      otherMemory_ = std::move(*oldMemory);
      return {};
    }
    const Status back = rewriting_.putInForce(std::move(old), *oldMemory, Keep::Values);
    if (back)
      return done;
    step_.residence_ = std::move(*oldMemory); // without its copies in the graph: replays refuse
    return inContext(back.error(),
                     fmt::format("putting the plan that was back in force after: {}", done.error().message));
  }

  /// Nobody knows how fast the last plan is.
  tl::unexpected<Error> forgetLast(Error why) {
    if (const Status back = exchange(std::move(otherPlan_), std::move(otherMemory_)); !back)
      return inContext(back.error(), fmt::format("returning to the plan before after: {}", why.message));
    step_.plans_.pop_back();
    return tl::unexpected<Error>(std::move(why));
  }

  /// To the plan before the last.
  Status returnTo(const PlanRecord &before) {
    PUMPGRAPH_TRY_WHILE(exchange(std::move(otherPlan_), std::move(otherMemory_)), "returning to the faster plan");
    step_.plans_.push_back(before);
    step_.plans_.back().why = "the plan made from measured node times is slower";
    return {};
  }

  Step &step_;
  Session &session_;
  Rewriting rewriting_;
  Measuring measuring_;
  CompiledPlan otherPlan_; ///< the plan that was in force before this one, and its memory
  std::shared_ptr<Residence> otherMemory_;
  Replanning result_;
};

Expected<Replanning> Step::replanBecause(const std::string &why) {
  if (isManaged())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" is on managed memory, where steps are not planned again",
                captured_.description.name);
  if (!rewritten())
    return fail(PUMPGRAPH_INVALID_ARGUMENT, "\"{}\" is left as captured ({}): there is no plan to improve",
                captured_.description.name, reason_);
  PUMPGRAPH_TRY(session_.checkNothingMapped(*this, "planned again"));
  PUMPGRAPH_TRY(session_.putInForce(*this));
  PUMPGRAPH_TRY(checkMemory());
  const Expected<const Compiler *> compiler = session_.compiler();
  if (!compiler)
    return tl::unexpected<Error>(compiler.error());
  return Replanner(*this, **compiler).run(why);
}

Expected<Replanning> Step::replan() {
  const std::lock_guard lock(session_.mutex_);
  const ContextScope scope(*session_.driver_, session_.context_);
  watch_.reset();
  Expected<Replanning> replanned = replanBecause("asked for");
  writeReport();
  return replanned;
}

} // namespace pumpgraph::runtime
