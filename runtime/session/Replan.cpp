// SPDX-License-Identifier: Apache-2.0
// Plans a rewritten step again with node times measured on it.
#include "runtime/lower/ReplaceFills.h"
#include "runtime/session/Measuring.h"
#include "runtime/session/Rewriting.h"

#include <algorithm>
#include <vector>

namespace pumpgraph::runtime {
namespace {

constexpr int repeats = 5;
/// Two plans whose steps differ by less are as good as each other; then the one made from measurements stays.
constexpr double noticeablySlower = 1.02;

/// By captured position: whether the node has operands in host memory, so that its time is not that on the device.
std::vector<bool> nodesWithHostedOperands(const Description &lowered, std::size_t count) {
  std::vector<bool> hosted(count, false);
  for (const Node &node : lowered.nodes)
    if (hasHostedOperand(lowered, node))
      hosted[static_cast<std::size_t>(node.captured)] = true;
  return hosted;
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
    Status done = measureFirst();
    Status restored = measuring_.restoreValues();
    PUMPGRAPH_TRY(done); // first: what fails afterwards follows from it
    PUMPGRAPH_TRY_WHILE(restored, "restoring the values after measuring");
    PUMPGRAPH_TRY(session_.heap_->flushCache());
    std::unique_ptr<Residence> others; // a boundary that others rely on stays
    if (!step_.sharers().empty())
      others = step_.residence_->forStep(step_.captured_.blocks);
    Expected<CompiledPlan> second = rewriting_.plan(step_.otherFrames(), "", others.get());
    if (!second)
      return tl::unexpected<Error>(second.error());
    // A first plan without hosted pages may have left memset nodes where they are.
    PUMPGRAPH_TRY(checkFills(*session_.driver_, step_.captured_.nodes, second->lowered));
    Expected<std::shared_ptr<Residence>> memory = rewriting_.prepare(*second, std::move(others));
    if (!memory)
      return tl::unexpected<Error>(memory.error());
    result_.before = step_.plans_.back();
    PUMPGRAPH_TRY(exchange(std::move(*second), std::move(*memory)));
    step_.beginPlan("measured on the rewritten step", why);
    done = measureSecond();
    restored = measuring_.restoreValues();
    if (!done)
      return forgetSecond(std::move(done).error());
    PUMPGRAPH_TRY_WHILE(restored, "restoring the values after measuring");
    if (*step_.plans_.back().measuredUs > *result_.before.measuredUs * noticeablySlower)
      PUMPGRAPH_TRY(returnToFirst());
    return result_;
  }

private:
  Status measureFirst() {
    const Expected<double> stepUs = measuring_.timeReplay(repeats);
    if (!stepUs)
      return tl::unexpected<Error>(stepUs.error());
    const Expected<std::vector<double>> costs = measuring_.timeNodes(repeats, *stepUs);
    if (!costs)
      return tl::unexpected<Error>(costs.error());
    step_.plans_.back().measuredUs = *stepUs;
    const std::vector<bool> hosted = nodesWithHostedOperands(step_.plan_.lowered, costs->size());
    for (std::size_t i = 0; i < costs->size(); ++i)
      if (!hosted[i])
        step_.captured_.description.nodes[i].costUs = (*costs)[i];
    result_.timedNodes = static_cast<std::size_t>(std::count(hosted.begin(), hosted.end(), false));
    return {};
  }

  Status measureSecond() {
    const Expected<double> stepUs = measuring_.timeReplay(repeats);
    if (!stepUs)
      return tl::unexpected<Error>(stepUs.error());
    step_.plans_.back().measuredUs = *stepUs;
    result_.after = step_.plans_.back();
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

  /// Nobody knows how fast the second plan is.
  tl::unexpected<Error> forgetSecond(Error why) {
    if (const Status back = exchange(std::move(otherPlan_), std::move(otherMemory_)); !back)
      return inContext(back.error(), fmt::format("returning to the first plan after: {}", why.message));
    step_.plans_.pop_back();
    return tl::unexpected<Error>(std::move(why));
  }

  Status returnToFirst() {
    PUMPGRAPH_TRY_WHILE(exchange(std::move(otherPlan_), std::move(otherMemory_)), "returning to the faster plan");
    step_.plans_.push_back(result_.before);
    step_.plans_.back().why = "the plan made from measured node times is slower";
    result_.keptFirst = true;
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
