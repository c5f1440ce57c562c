// SPDX-License-Identifier: Apache-2.0
/// \file
/// A captured step: its graph, its plan, and the operations on it.
#pragma once

#include "runtime/lower/LowerGraph.h"
#include "runtime/session/ManagedStep.h"
#include "runtime/session/Observation.h"
#include "runtime/session/Session.h"

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <set>
#include <utility>

namespace pumpgraph::runtime {

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

inline constexpr double usPerSecond = 1e6;

/// The compiler library's plan of a captured step.
struct CompiledPlan {
  std::string name; ///< among the compiler library's candidates
  Description lowered;
  std::shared_ptr<const nlohmann::ordered_json> report; ///< null before, and where the library gave none
  std::uint64_t otherFrames = 0;       ///< of the session, held by allocations that the step does not touch
  std::optional<Description> boundary; ///< other steps' values that the plan has to keep, until it was in force once
  std::uint64_t savedTimes = 0;        ///< nodes whose time the caller gave
  ReservedBlocks continuations;        ///< of the lowered buffers that continue others, in their order

  /// Of all lowered buffers; those of `step`, which was planned, come first.
  std::vector<BlockId> blocksOf(const CapturedStep &step) const;
  /// Of one for managed memory: whether an agent has anything to do.
  bool hasOperations() const;
  double predictedUs() const;
  /// The lower bound of all plans of the step.
  double boundUs() const;
};

/// Accesses whose slowdown was measured: captured position, position among the node's accesses.
using KnownAccesses = std::set<std::pair<std::size_t, std::size_t>>;

/// A present or former plan, for the report.
struct PlanRecord {
  std::string costs; ///< where the node times came from
  std::string why;
  double predictedUs = 0;
  std::optional<double> measuredUs;       ///< a whole replay
  std::optional<double> predictedAgainUs; ///< with the node times that were measured on it
};

class KeptValues;
class Replanner;

struct Replanning {
  PlanRecord before;
  PlanRecord after;
  bool keptFirst = false; ///< all others were slower, and the one from before is in force again
  std::uint64_t timedNodes = 0;
};

/// The state that a caller needs ahead of a launch of its own.
struct LaunchState {
  bool graphHasChanged = false; ///< since the last time: it has to be instantiated anew
  bool isWatched = false;       ///< afterLaunch() is to be called, and beforeLaunch() before the next launch
};

struct Measurement {
  double stepUs = 0;
  std::uint64_t timedNodes = 0;
};

struct Validation {
  std::uint64_t comparedBuffers = 0;
  std::uint64_t comparedBytes = 0;
  std::uint64_t differentBuffers = 0;
  std::uint64_t unstableBuffers = 0;
  std::string firstDifference;
  std::uint64_t impureNodes = 0; ///< that the plan runs again; looked for where something differs or is unstable
  std::string impure;            ///< each of their kernels, or why none was looked at
};

/// Owned by its session. `residence_` exists if and only if the graph is rewritten for virtual memory, `managed_` if
/// and only if it is rewritten for managed memory; otherwise `reason_` is the reason. A residence is installed while
/// the step's plan is in force; the graph keeps its copies and edges at all times. Steps that share a boundary share a
/// residence, so their plans are in force together.
class Step {
public:
  Step(Session &session, CUgraph graph);
  ~Step();
  Step(const Step &) = delete;
  Step &operator=(const Step &) = delete;

  Session &session() const { return session_; }
  const Description &captured() const { return captured_.description; }
  bool rewritten() const { return residence_ != nullptr; }
  /// Rewritten for managed memory, where there is no residence.
  bool isManaged() const { return managed_ != nullptr; }
  /// Whether the plan in force copies anything between device and host, or has operands there.
  bool movesAnything() const;

  Status replay(CUstream stream);
  /// Puts the step's plan in force if it is not, as a replay does; nothing for a step left as captured.
  Status putInForce() { return prepareReplay(nullptr, {}); }
  /// The same, and then these copies on `stream`.
  Status prepareReplay(CUstream stream, std::span<const pumpgraph_copy> copies);
  std::string report();
  Status save(const std::string &path);
  /// Writes the plan's device memory over one replay, for PyTorch's memory viewer.
  Status memorySnapshot(const std::string &path);
  Expected<Measurement> measure(int repeats);
  Expected<Validation> validate();
  /// Call around each launch of a caller's own instantiation while the step is watched: the part of replay() that plans
  /// the step again.
  Expected<LaunchState> beforeLaunch(CUstream stream);
  Status afterLaunch(CUstream stream);
  /// Runs every kernel of the step alone, with plain and with poisoned operands, and adds the findings to those of
  /// earlier calls. `values`: allocations by whose contents kernels find nothing, so that any word can be changed.
  /// Contents are restored.
  Expected<Observation> observe(const std::vector<CUdeviceptr> &values = {});
  /// Measures node times on the rewritten step, plans it again with them, and keeps the fastest plan.
  /// The session's buffers keep their contents. A graph that its caller instantiated has to be instantiated again.
  Expected<Replanning> replan();

private:
  friend class Adoption;
  friend class Calibration;
  friend class HostedTimes;
  friend class KeptValues;
  friend class ManagedTrials;
  friend class NodeClocks;
  friend class PlannedTogether;
  friend class Session;
  friend class Measuring;
  friend class Observing;
  friend class PurityCheck;
  friend class Validating;
  friend class Replanner;
  friend class Rewriting;

  /// Copies the graph, which is still as captured.
  Status keepOriginal();
  Status instantiate();
  /// An instantiation of the graph as it was is of no use any more.
  void graphIsChanging();
  /// Instantiates a graph made from the step's, runs it once and waits. `which`: for messages, as in "the {}".
  Status runOnce(CUgraph graph, const std::string &which) const;
  /// PUMPGRAPH_INTERNAL where a driver failure has left the step without the memory its plan wants.
  Status checkMemory() const;
  /// The session's device frames that a plan of this step has to leave alone: those of allocations that no rewritten
  /// step uses, and of other steps' exclusive buffers.
  std::uint64_t otherFrames() const;
  /// The other steps that share this one's boundary.
  std::vector<Step *> sharers() const;
  /// Orders the replays of steps that share memory, regardless of their streams: call ahead of a launch, and after it.
  Status followSharers(CUstream stream);
  Status leadSharers(CUstream stream);
  /// Notes that the plan in force is a new one.
  void beginPlan(std::string costs, std::string why);
  /// In the report too, once that is written again.
  void warn(const std::string &text);
  /// Has the first replays timed, and the step planned again if they miss the prediction.
  void watchReplays(const Compiler &compiler);
  void goOnReplanning(CUstream stream);
  /// Plans the step again if memory of others has taken part of the plan's budget.
  void fitToBudget();
  /// Before the step is run or changed otherwise: the graph is that of a plan that was timed, if any was.
  Status stopReplanning();
  Status replayFor(Replanner &replanner, KeptValues &values);
  void writeReport();
  /// Gives the report the step times by the node times that are known by now.
  void tellTimes();
  /// Gives the memory back to the session's heap.
  void letGo();
  /// A buffer's value at the boundary, wherever it is.
  Status readValue(BufferIndex buffer, char *target);
  Status writeValue(BufferIndex buffer, const char *source);

  Session &session_;
  CUgraph graph_;
  bool ownsGraph_ = false;
  bool mayRepeat_ = false;                 ///< plans may run nodes again
  CUgraph original_ = nullptr;             ///< a copy of the graph as captured; rewritten steps only
  std::vector<CUgraphNode> originalNodes_; ///< of `original_`, by position
  CUgraphExec exec_ = nullptr;
  LiftedGraph lifted_; ///< as captured, but for the handles of fills that kernels do
  CapturedStep captured_;
  CompiledPlan plan_;
  RewrittenStep rewritten_;
  std::shared_ptr<const AsideMemory> aside_; ///< if plans may run nodes again that have something aside
  std::unique_ptr<GraphEditor> edits_;       ///< the changes of the plan in force to `graph_`
  std::shared_ptr<Residence> residence_;
  std::unique_ptr<ManagedStep> managed_;
  std::size_t bystanders_ =
      0; ///< so many captured buffers, the last ones, other steps keep and this one does not touch
  std::vector<std::string> plannedAgain_; ///< steps that were, so that this one shares their boundary
  std::string reason_;
  std::string backendWhy_;
  std::vector<PlanRecord> plans_; ///< in the order they were made
  KnownAccesses knownAccesses_;
  Observation observation_;                        ///< of all calls of observe()
  std::unique_ptr<Replanner> replanner_;           ///< while replays are timed, to plan the step again
  bool exceedsBudget_ = false;                     ///< other memory leaves less of it than at planning time
  bool graphHasChanged_ = false;                   ///< since a caller was told
  std::uint64_t exchanges_ = 0;                    ///< how often the plan took the place of another, or of none
  double exchangeMs_ = 0;                          ///< all of them together
  std::shared_ptr<nlohmann::ordered_json> report_; ///< but for the plans and the exchanges
  bool timesAreTold_ = false;                      ///< in `report_`, by tellTimes()
  AdoptionTimes times_;
};

} // namespace pumpgraph::runtime
