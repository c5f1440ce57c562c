// SPDX-License-Identifier: Apache-2.0
/// \file
/// From a captured step to a rewritten graph and back: what adopting a step and planning it again have in common.
#pragma once

#include "runtime/measure/HostedTimes.h"
#include "runtime/state/PlanJob.h"
#include "runtime/state/StepState.h"

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <span>

namespace pumpgraph::runtime {

/// What a step on managed memory is planned by.
struct ManagedKnowledge {
  bool accessesAreKnown = false;
  std::int32_t prefetching = 0; ///< a pumpgraph_prefetching
  Hosting hosting = {};
};

/// Changes one step's graph and the memory behind its buffers. When a call fails, the graph is as it was, or restored()
/// says why it is not.
class Rewriting {
public:
  Rewriting(StepState &step, const Compiler &compiler);

  /// Has the captured step planned, with what `otherFrames` device frames leave of the budget. `costsIr` may be empty.
  /// `others`: for a boundary shared with them, their residence made by forStep(); else null. `apart`: as in the
  /// compiler's options.
  Expected<CompiledPlan> plan(std::uint64_t otherFrames, const std::string &costsIr, const Residence *others = nullptr,
                              std::span<const pumpgraph_apart_pages> apart = {});
  /// The same in three parts, of which the compiler's, PlanRequest::run(), may be on another thread.
  Expected<PlanRequest> request(std::uint64_t otherFrames, const std::string &costsIr,
                                const Residence *others = nullptr,
                                std::span<const pumpgraph_apart_pages> apart = {}) const;
  Expected<CompiledPlan> take(const PlanRequest &request, Compilation compilation);
  const Compiler &compiler() const { return compiler_; }
  /// What a replay of a lowered step takes with the node times in it, microseconds.
  Expected<double> predictUs(const Description &lowered) const;
  /// The figures of the plan's report that depend on node times, with those that are known of the captured step.
  Expected<nlohmann::ordered_json> retimedFigures() const;
  /// What a replay of the step's plan has on the device: a pickled snapshot for PyTorch's memory viewer.
  Expected<std::string> memoryViz() const;
  /// The memory of a plan, with the pinned pool that its copies name; `others` as before. Nothing of the step has
  /// changed yet.
  Expected<std::shared_ptr<Residence>> prepare(CompiledPlan &plan, std::unique_ptr<Residence> others = nullptr);
  /// Maps the memory, changes the graph, lifts it again and checks it. No plan may be in force, but those of steps that
  /// have this memory too. `residence` becomes the step's if that succeeds. If not, buffers have memory of their own as
  /// after takeBack(), or the driver failed on the way there too.
  Status putInForce(CompiledPlan plan, const std::shared_ptr<Residence> &residence, Keep keep);
  /// The opposite. The plan's residence is returned, to be put in force again.
  Expected<std::shared_ptr<Residence>> takeBack(Keep keep);

  /// The same on managed memory: makes candidate plans; then adds the operations to the graph, with an agent that
  /// carries them out. There is at least one plan.
  Expected<std::vector<CompiledPlan>> planManaged(const std::string &costsIr, const ManagedKnowledge &known);
  Status putInForceManaged(CompiledPlan plan);
  /// The opposite. No replay may be under way.
  Status takeBackManaged();

  /// Whether the graph was as captured when a plan was taken out of it last, by takeBack() or because putting one in
  /// force failed. If not, what is left of the plan there names memory that is gone: the graph must not be launched,
  /// and no plan can be put in force in it unless it happens to have the same left.
  const Status &restored() const { return restored_; }

  /// Whether the plan that was made last gives buffers other addresses, or was refused and might have.
  bool hasRenamed() const { return hasRenamed_; }

  /// Whether the plan that was made last runs nodes again, or was refused and might have.
  bool hasRepeated() const { return hasRepeated_; }

private:
  /// The options of a plan of which the program sees how far it is, and the plan made that way.
  pumpgraph_compiler_options watched(pumpgraph_compiler_options options) const;
  Compilation shown(const std::function<Compilation()> &plan) const;
  /// All candidate plans, of which there is at least one.
  Expected<std::vector<CompiledPlan>> takeAll(const Compilation &compilation, const pumpgraph_compiler_options &options,
                                              std::uint64_t otherFrames, bool costsGiven, bool isForSharedBoundary);
  Expected<CompiledPlan> planOf(const pumpgraph_candidate &candidate) const;
  /// Gives the lowered buffers that the captured step does not have, all of them continuations, addresses.
  Status reserveContinuations(CompiledPlan &plan, bool isForSharedBoundary) const;
  Status lowerAndCheckManaged(GraphEditor &editor, const CompiledPlan &plan, CUdeviceptr words);
  pumpgraph_compiler_options compilerOptions(std::uint64_t otherFrames, const std::string &costsIr) const;
  /// The same for a step on managed memory. The link is measured first where it is not known.
  Expected<pumpgraph_compiler_options> managedOptions(const std::string &costsIr) const;
  Status statusOf(pumpgraph_compiler_status compiled, const std::string &message, std::uint64_t otherFrames,
                  bool costsGiven) const;
  Status lowerAndCheck(GraphEditor &editor, const CompiledPlan &plan, const Residence &residence);
  /// Whether the rewritten step, with the frames and places it really has, keeps the boundary.
  Status checkBoundary(const Description &boundary, Description rewritten, const Residence &residence) const;
  void noteIfLost(const Residence &residence);
  /// Takes the plan's changes out of the graph. Where that fails its addresses stay the session's: what a kernel still
  /// has of them leads to no memory, and never to another's.
  void restore(GraphEditor &editor, const CompiledPlan &plan);
  /// Likewise, and returns `why` with what became of the graph if that fails too.
  Error restoreAfter(Error why, GraphEditor &editor, const CompiledPlan &plan);
  /// Restores the graph of the plan in force, and drops its instantiation.
  void leaveGraph();
  const std::string &name() const { return step_.captured.description.name; }

  StepState &step_;
  SessionState &session_;
  const Driver &driver_;
  const Compiler &compiler_;
  bool hasRenamed_ = false;
  bool hasRepeated_ = false;
  Status restored_;
};

/// "1.0 GiB of the budget of 4.0 GiB hold allocations that the step does not touch"
std::string othersText(std::uint64_t otherFrames, std::uint64_t budgetFrames);

} // namespace pumpgraph::runtime
