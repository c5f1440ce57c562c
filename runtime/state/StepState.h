// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a session knows of a captured step, as plain state: one struct for each concern.
#pragma once

#include "runtime/lower/LowerGraph.h"
#include "runtime/managed/ManagedStep.h"
#include "runtime/state/CompiledPlan.h"
#include "runtime/state/Observation.h"
#include "runtime/state/SessionState.h"
#include "runtime/state/StepResults.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pumpgraph::runtime {

class Replanner;

/// Wall time of the stages of an adoption, milliseconds.
struct AdoptionTimes {
  double captureMs = 0;
  double liftMs = 0;
  double scanMs = 0;      ///< looking for pointers in memory
  double hostedMs = 0;    ///< timing nodes with operands in host memory
  double trialsMs = 0;    ///< replaying several plans to keep the fastest
  double calibrateMs = 0; ///< the same while the step runs, if asked for
  double planMs = 0;      ///< the compiler: plan, lower, check
  double pinnedMs = 0;
  double mapMs = 0;
  double lowerMs = 0; ///< changing the driver's graph
  double checkMs = 0; ///< lifting it again and checking it
};

/// Accesses whose slowdown was measured: captured position, position among the node's accesses.
using KnownAccesses = std::set<std::pair<std::size_t, std::size_t>>;

/// The driver's graph of a step. It keeps the copies and edges of the last plan at all times.
struct StepGraph {
  CUgraph handle = nullptr;
  bool isOwned = false;
  CUgraph original = nullptr;             ///< a copy of the graph as captured; rewritten steps only
  std::vector<CUgraphNode> originalNodes; ///< of `original`, by position
  CUgraphExec exec = nullptr;             ///< of the graph as it is; null once that has changed
  std::unique_ptr<GraphEditor> edits;     ///< the changes of the plan in force
  LiftedGraph lifted;                     ///< as captured, but for the handles of fills that kernels do
  RewrittenStep readBack;                 ///< as rewritten
  bool hasChanged = false;                ///< since a caller was told
};

/// The memory behind a step's plan. There is a residence if and only if the graph is rewritten for virtual memory, and
/// `managed` if and only if it is rewritten for managed memory. A residence is installed while the step's plan is in
/// force. Steps that share a boundary share a residence, so their plans are in force together.
struct StepMemory {
  std::shared_ptr<const AsideMemory> aside; ///< if plans may run nodes again that have something aside
  std::shared_ptr<Residence> residence;
  std::unique_ptr<ManagedStep> managed;
};

/// What further plans of a step go by.
struct StepPlanning {
  bool mayRepeat = false;     ///< plans may run nodes again
  bool exceedsBudget = false; ///< other memory leaves less of it than at planning time
  KnownAccesses knownAccesses;
  Observation observation;              ///< of all calls of observe()
  std::shared_ptr<Replanner> replanner; ///< while replays are timed, to plan the step again; nobody else's
};

/// What has become of a step, for its report.
struct StepHistory {
  std::vector<PlanRecord> plans;         ///< in the order they were made
  std::vector<std::string> plannedAgain; ///< steps that were, so that this one shares their boundary
  std::uint64_t exchanges = 0;           ///< how often the plan took the place of another, or of none
  double exchangeMs = 0;                 ///< all of them together
  AdoptionTimes times;
};

struct StepReport {
  std::string reason; ///< why the step is left as captured
  std::string backendWhy;
  std::shared_ptr<nlohmann::ordered_json> json; ///< but for the plans and the exchanges
  bool timesAreTold = false;                    ///< in `json`
};

/// Owned by its session.
struct StepState {
  StepState(SessionState &owner, CUgraph captured);
  ~StepState();
  StepState(const StepState &) = delete;
  StepState &operator=(const StepState &) = delete;

  bool isRewritten() const { return memory.residence != nullptr; }
  /// Rewritten for managed memory, where there is no residence.
  bool isManaged() const { return memory.managed != nullptr; }
  const std::string &name() const { return captured.description.name; }

  SessionState &session;
  StepGraph graph;
  CapturedStep captured;
  std::size_t bystanders = 0; ///< so many captured buffers, the last ones, are kept by other steps alone
  CompiledPlan plan;
  StepMemory memory;
  StepPlanning planning;
  StepHistory history;
  StepReport report;
};

/// Whether the plan in force copies anything between device and host, or has operands there.
bool movesAnything(const StepState &step);
/// Notes that the plan in force is a new one.
void beginPlan(StepState &step, std::string costs, std::string why);
/// In the report too, once that is written again.
void warn(StepState &step, const std::string &text);

// The driver's graph.

/// Copies the graph, which is still as captured.
Status keepOriginal(StepState &step);
Status instantiate(StepState &step);
/// An instantiation of the graph as it was is of no use any more.
void graphIsChanging(StepState &step);
/// Instantiates a graph made from the step's, runs it once and waits. `which`: for messages, as in "the {}".
Status runOnce(const StepState &step, CUgraph graph, const std::string &which);

} // namespace pumpgraph::runtime
