// SPDX-License-Identifier: Apache-2.0
/// \file
/// Planning a step again from what its replays take.
#pragma once

#include "runtime/measure/NodeClocks.h"
#include "runtime/measure/ReplayWatch.h"
#include "runtime/session/Rewriting.h"

#include <memory>
#include <optional>
#include <string>

namespace pumpgraph::runtime {

/// Looks on while a rewritten step is replayed, by whomever: times whole replays, then puts clocks between the nodes
/// and times these, plans the step again with what they take, times the new plan in turn, and keeps the faster one. It
/// replays nothing, so that no value changes that the program does not change itself.
///
/// Between the calls the graph may hold clocks, and a plan may be in force whose time is not known: stop() ends that.
class Replanner {
public:
  /// Planning because somebody asks for it.
  Replanner(StepState &step, const Compiler &compiler);
  /// Planning only if the first plan's replays take over a tenth more or less than predicted.
  static std::unique_ptr<Replanner> onMiss(StepState &step, const Compiler &compiler);
  ~Replanner();
  Replanner(const Replanner &) = delete;
  Replanner &operator=(const Replanner &) = delete;

  /// Before each launch of the step, where its plan is in force: reads what the last one took, and may change the graph
  /// and the plan. Waits for the last launch where it was timed node by node, and for the device where it plans. Where
  /// the session plans aside, the plan in force goes on until a thread has made the next one.
  Status beforeLaunch(CUstream stream);
  /// After the launch.
  Status afterLaunch(CUstream stream);
  bool isDone() const { return stage_ == Stage::Done; }
  const Replanning &result() const { return result_; }

  /// Plans again at once with the node times that there are, for what the budget leaves, whatever that takes.
  Status planNow(std::string why);

  /// A step that shares the boundary goes, with its blocks: there is no way back to a plan that knows of them.
  void staysWithPlan() {
    otherPlan_ = {};
    otherMemory_.reset();
  }

  /// Takes clocks out of the graph, and a plan out of force that has not been timed.
  Status stop();

private:
  enum class Stage : std::uint8_t { Replays, NodesApart, NodesTogether, Planning, Done };

  Status advance();
  Status replaysAreTimed(double us);
  Status nodesAreTimed(const std::vector<NodeClocks::Run> &together);
  Status settle();
  void finish() { stage_ = Stage::Done; }
  Status timeNodes(Stage stage);
  Status takeClocksOut();
  Status predictAgain();
  Status planAgain();
  Status plan();
  /// Passes on what planning has come to. Where one more plan than the second fails, the step goes on without.
  Status planned(Status made);
  /// Ahead of planning: waits for the device, and gives up frames and pinned memory that nothing needs.
  Status settleMemory();
  /// Whether the plan before can be put in force again. Its memory knows of no step that has joined the boundary since,
  /// nor of another plan of one that shares it.
  bool canReturn() const;
  /// Whether a plan of a step that shares the boundary is on trial. To change the boundary would end that.
  bool mustWaitForSharers() const;
  /// Whether the next plan is to be made on a thread.
  bool plansAside() const;
  Status beginPlanning();
  Status goOnPlanning();
  /// Whether a plan for what was asked could be put in force now.
  bool isCurrent(const PlanRequest &request) const;
  Status tryPlanAgain(const std::string &costs);
  Status change(Expected<CompiledPlan> next, std::unique_ptr<Residence> others, const std::string &costs);
  Status exchange(CompiledPlan plan, std::shared_ptr<Residence> memory);
  Status returnTo(const PlanRecord &before);

  StepState &step_;
  SessionState &session_;
  const Driver &driver_;
  Rewriting rewriting_;
  std::string why_ = "asked for";
  bool onlyOnMiss_ = false;

  Stage stage_ = Stage::Replays;
  std::unique_ptr<ReplayWatch> watch_; ///< while whole replays are timed
  std::unique_ptr<NodeClocks> clocks_; ///< while nodes are
  CUevent end_ = nullptr;              ///< of the last launch with clocks
  std::size_t launches_ = 0;           ///< with the clocks that there are
  std::vector<NodeClocks::Run> apart_;

  std::shared_ptr<PlanJob> job_; ///< on a thread
  int outdated_ = 0;             ///< plans that were of no use any more when they were made
  int plans_ = 0;                ///< made so far
  PlanRecord planBefore_;        ///< the last one
  int waits_ = 0;                ///< replays that have waited for a trial of another step's plan
  CompiledPlan otherPlan_;       ///< the plan that was in force before this one, and its memory
  std::shared_ptr<Residence> otherMemory_;
  std::weak_ptr<Residence> memory_; ///< of this one, as it was put in force
  double fastestUs_ = 0;
  bool stays_ = true;   ///< the last plan, whatever is learned of its nodes
  bool goesOn_ = false; ///< another plan may be faster
  Replanning result_;
};

/// Has the first replays timed, and the step planned again if they miss the prediction.
void watchReplays(StepState &step, const Compiler &compiler);
/// Ahead of a launch.
void goOnReplanning(StepState &step, CUstream stream);
/// Plans the step again if memory of others has taken part of the plan's budget.
void fitToBudget(StepState &step);
/// Before the step is run or changed otherwise: the graph is that of a plan that was timed, if any was.
Status stopReplanning(StepState &step);
/// See Step::replan(). The step's plan is in force, and nothing is being timed.
Expected<Replanning> replan(StepState &step);

} // namespace pumpgraph::runtime
