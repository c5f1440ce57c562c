// SPDX-License-Identifier: Apache-2.0
// A plan for virtual memory: alone, or in the boundary of other steps.
#include "runtime/session/Adoption.h"

#include "runtime/lower/ReplaceFills.h"
#include "runtime/session/Rewriting.h"
#include "runtime/state/Exchange.h"
#include "runtime/state/Values.h"

#include <algorithm>
#include <utility>

namespace pumpgraph::runtime {

/// A step that takes so many times as long in the boundary of another as for itself is planned for itself.
constexpr double mostSlowdown = 1.3;

Status Adoption::rewrite(const Compiler &compiler) {
  const Status done = rewriteVirtual(compiler);
  if (!done && fills_)
    session_.capture.rehearsal.reset(); // fills return at other places among the nodes, and what it knows goes by place
  return done;
}

Status Adoption::rewriteVirtual(const Compiler &compiler) {
  Rewriting rewriting(*step_, compiler);
  PUMPGRAPH_TRY_WHILE(keepOriginal(*step_), "keeping the graph as captured");
  PUMPGRAPH_TRY_WHILE(keepRepeatable(), "trying which nodes can be run again");
  std::shared_ptr<Residence> others;
  if (neighbour_ && neighbour_->isRewritten() && checkMemory(*neighbour_) && options_.boundary != BoundaryChoice::Own) {
    const Expected<std::string> obstacle = shareBoundary(rewriting, compiler);
    if (!obstacle)
      return tl::unexpected<Error>(obstacle.error());
    if (obstacle->empty())
      others = neighbour_->memory.residence;
    else
      step_->captured.notes.push_back(fmt::format("replays after \"{}\" exchange plans, because there is no good one "
                                                  "that keeps its boundary: {}",
                                                  neighbour_->name(), *obstacle));
  }
  if (!others)
    PUMPGRAPH_TRY(rewriteAlone(rewriting));
  beginPlan(*step_, step_->plan.savedTimes == 0 ? "static estimates" : "saved times", "the first plan");
  const Status backed = backResults();
  if (backed) {
    if (others)
      replaceResidence(session_, others, step_->memory.residence);
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

Status Adoption::replaceFillsBeside(const CompiledPlan &plan) {
  LiftedGraph &lifted = step_->graph.lifted;
  const std::vector<Node> &nodes = plan.lowered.nodes;
  const bool copies = std::any_of(nodes.begin(), nodes.end(), [](const Node &node) { return isCopy(node.kind); });
  const bool fills = std::any_of(lifted.nodes.begin(), lifted.nodes.end(),
                                 [](const LiftedNode &node) { return node.kind == NodeKind::Memset; });
  const bool hosts = std::any_of(plan.lowered.buffers.begin(), plan.lowered.buffers.end(),
                                 [](const Buffer &buffer) { return !buffer.hosted.empty(); });
  const bool slowsCopies = copies && !driver_.kernelQueues.areFew() && hasBranches(lifted);
  if (slowsCopies)
    step_->captured.notes.push_back(fmt::format(
        "copies are up to a tenth slower than they could be: branches of the step wait in {} queues of the device; set "
        "{}={}, or create the session before anything else uses CUDA",
        driver_.kernelQueues.count, KernelQueues::variable, KernelQueues::few));
  if (fills_ || !fills || !(hosts || slowsCopies))
    return {};
  const Expected<const FillKernel *> kernel = fillKernelOf(session_);
  if (!kernel) {
    PUMPGRAPH_TRY_WHILE(checkFills(driver_, step_->captured.nodes, plan.lowered), "{}", kernel.error().message);
    if (slowsCopies)
      step_->captured.notes.push_back("memset nodes in branches stay, and make copies slower: " +
                                      kernel.error().message);
    return {};
  }
  fills_ = std::make_unique<GraphEditor>(driver_, graph_, session_.device.context);
  PUMPGRAPH_TRY(replaceFills(*fills_, driver_, **kernel, *session_.memory.addresses, lifted));
  for (std::size_t position = 0; position < lifted.nodes.size(); ++position)
    step_->captured.nodes[position] = lifted.nodes[position].handle;
  return {};
}

Status Adoption::rewriteAlone(Rewriting &rewriting) {
  Status done = putOwnPlanInForce(rewriting);
  if (!done && rewriting.hasRepeated() && !isLost(session_, step_->captured.blocks)) {
    step_->planning.mayRepeat = false;
    if (putOwnPlanInForce(rewriting)) {
      step_->captured.notes.push_back("no node runs again: " + done.error().message);
      return {};
    }
  }
  if (done || !rewriting.hasRenamed() || isLost(session_, step_->captured.blocks))
    return done;
  // Addresses may be short, or some kernel takes no other parameters.
  for (Buffer &buffer : step_->captured.description.buffers)
    buffer.isRenamable = false;
  if (!putOwnPlanInForce(rewriting))
    return done;
  step_->captured.notes.push_back("every buffer keeps its address: " + done.error().message);
  return {};
}

Status Adoption::putOwnPlanInForce(Rewriting &rewriting) {
  Expected<CompiledPlan> plan = ownPlan_ ? std::move(*std::exchange(ownPlan_, std::nullopt))
                                         : rewriting.plan(otherFrames(*step_), options_.costsIr);
  if (!plan && plan.error().status == PUMPGRAPH_UNPLANNABLE && step_->memory.aside) {
    PUMPGRAPH_TRY(doWithoutAsides("the budget has no room for the memory that they would have"));
    plan = rewriting.plan(otherFrames(*step_), options_.costsIr);
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
  CapturedStep alone = step_->captured;
  const auto giveUp = [&](std::string why) {
    alone.nodes = step_->captured.nodes; // fills may be others by now
    step_->captured = std::move(alone);
    step_->bystanders = 0;
    together_.reset();
    return why;
  };
  Expected<SharingPlan> shared = planInto(rewriting, *neighbour_->memory.residence);
  if (!shared && shared.error().status == PUMPGRAPH_UNPLANNABLE && options_.plansOthersAgain &&
      options_.boundary == BoundaryChoice::Shared) {
    const std::string why = shared.error().message;
    step_->captured = alone;
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
    CapturedStep withBystanders = std::exchange(step_->captured, alone);
    Expected<CompiledPlan> own = rewriting.plan(otherFrames(*step_), options_.costsIr);
    alone = step_->captured; // with the notes about the costs
    if (own && plan.predictedUs() > mostSlowdown * own->predictedUs()) {
      ownPlan_ = std::move(*own);
      return giveUp(fmt::format("the step would take {:.1f} ms instead of {:.1f}", plan.predictedUs() * 1e-3,
                                ownPlan_->predictedUs() * 1e-3));
    }
    step_->captured = std::move(withBystanders);
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
  if (isLost(session_, step_->captured.blocks))
    return tl::unexpected<Error>(done.error());
  return giveUp(done.error().message);
}

std::vector<StepState *> Adoption::neighbours() const {
  std::vector<StepState *> steps;
  for (const std::unique_ptr<StepState> &step : session_.steps)
    if (step->memory.residence == neighbour_->memory.residence)
      steps.push_back(step.get());
  return steps;
}

Expected<Adoption::SharingPlan> Adoption::planInto(Rewriting &rewriting, const Residence &theirs) {
  step_->bystanders = PlannedTogether::addBystanders(step_->captured, neighbours(), theirs);
  std::unique_ptr<Residence> others = theirs.forStep(step_->captured.blocks);
  Expected<CompiledPlan> plan = rewriting.plan(otherFrames(*step_), options_.costsIr, others.get());
  if (!plan)
    return tl::unexpected<Error>(plan.error());
  return SharingPlan{std::move(*plan), std::move(others)};
}

Expected<Adoption::SharingPlan> Adoption::planAgainInto(Rewriting &rewriting, const Compiler &compiler) {
  const std::vector<StepState *> others = neighbours();
  for (const StepState *other : others)
    PUMPGRAPH_TRY(checkMemory(*other));
  together_.emplace(others, *step_, compiler);
  PUMPGRAPH_TRY(together_->plan());
  return planInto(rewriting, together_->residence());
}

Status Adoption::returnOthersPlans() {
  return together_ && together_->isTaken() ? together_->giveBack() : Status{};
}

} // namespace pumpgraph::runtime
