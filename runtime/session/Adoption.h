// SPDX-License-Identifier: Apache-2.0
/// \file
/// The way from a captured graph to a step that can be replayed.
#pragma once

#include "runtime/managed/Thrashing.h"
#include "runtime/measure/PurityCheck.h"
#include "runtime/session/ManagedTrials.h"
#include "runtime/session/PlannedTogether.h"
#include "runtime/state/StepState.h"

namespace pumpgraph::runtime {

/// Lifts a graph, plans it, gives its buffers their memory, rewrites it, checks what came out. When run() fails, the
/// graph is as it was, and its buffers have memory of their own if anything had changed.
class Adoption {
public:
  /// No plan is in force. That of `before`, if any, is put in force again where the graph is left as captured. The
  /// boundary of `neighbour`, if any, may be shared.
  Adoption(SessionState &session, CUgraph graph, const AdoptOptions &options, StepState *before, StepState *neighbour)
      : session_(session), driver_(*session.driver), heap_(*session.memory.heap), graph_(graph), options_(options),
        before_(before), neighbour_(neighbour) {}

  Expected<std::unique_ptr<StepState>> run();

private:
  Expected<std::unique_ptr<StepState>> tryRun();
  Status lift();
  Status checkNothingIsLeft() const;
  /// What the rehearsal called nodes and buffers that have no name.
  void takeNames(const Rehearsal &rehearsal);
  Status describe();
  /// Describes the step again, with what a run of it shows. Nodes stay pure only if they do the same in a second run.
  Status calibrate();
  /// In a session that chooses: takes the memory that the step needs, and describes it anew if that is of another kind.
  Status chooseBackend();
  /// Where the session has other memory than when the graph was captured.
  Status renewIfCapturedElsewhere();
  /// Whether there may be graphs in the graph that nobody can change.
  bool mayHaveBodies() const;
  /// Whether managed memory would help a step that cannot be seen into.
  Expected<bool> isShortOfFrames();
  /// A sentence: of the memory that the step got.
  std::string backendWhy() const;
  /// Why the graph cannot be rewritten, whatever the budget; empty if it can.
  std::string refusal() const;
  Status checkAgainstOtherSteps() const;
  /// Whether every other step that uses the block may send it away too.
  bool isPrivateElsewhere(BlockId block) const;
  /// Gives up what only the cache, the capture's dead, and stand-ins hold.
  Status makeRoom();
  Status rewrite(const Compiler &compiler);
  Status rewriteVirtual(const Compiler &compiler);
  /// The nodes lose their purity, and with them all others of their kernels; the notes say so.
  void takePurity(const std::vector<FalsePurity> &found);
  /// No node stays pure that the driver does not copy; the notes say which.
  Status keepRepeatable();
  /// Whether plans may run nodes of the step again.
  bool mayRepeat() const;
  /// Memory for what nodes that may run again have aside; if there is none, nothing is aside.
  Status getAsideMemory();
  /// From here on nothing is aside, and the memory is there for other things.
  Status doWithoutAsides(const std::string &why);
  /// Why a captured node cannot be run again; empty if it can.
  Expected<std::string> obstacleToRepetition(std::size_t position) const;
  /// If branches of the graph would make the plan's copies slower, which the notes say then, or if the plan hosts
  /// pages: see ReplaceFills.h.
  Status replaceFillsBeside(const CompiledPlan &plan);
  Status rewriteManaged(const Compiler &compiler);
  /// One plan. Where something moves and nodes may be timed with operands in host memory, several candidates.
  Expected<std::vector<CompiledPlan>> planManaged(Rewriting &rewriting);
  /// By buffer: what other steps keep in host memory stays there, and what they have on the device is not sent away.
  Hosting hostingChoices() const;
  /// What the step may touch that no parameter shows.
  std::vector<Unplanned> unplanned() const;
  /// Plans the step into the boundary of the step before and puts that plan in force. Returns why not; empty: it is
  /// done.
  Expected<std::string> shareBoundary(Rewriting &rewriting, const Compiler &compiler);
  /// Steps that share the boundary of the step before, itself among them, in the order of their adoption.
  std::vector<StepState *> neighbours() const;
  /// A plan in a boundary, and the residence that its own is made from.
  struct SharingPlan {
    CompiledPlan plan;
    std::unique_ptr<Residence> others;
  };
  Expected<SharingPlan> planInto(Rewriting &rewriting, const Residence &theirs);
  /// Where there is none in the boundary as it is: in that which the others leave once they are planned again.
  Expected<SharingPlan> planAgainInto(Rewriting &rewriting, const Compiler &compiler);
  /// Where the others were planned again, and this step's plan cannot be in force.
  Status returnOthersPlans();
  /// If a plan with second addresses fails, without.
  Status rewriteAlone(Rewriting &rewriting);
  Status putOwnPlanInForce(Rewriting &rewriting);
  Status leaveAsCaptured(std::string reason);
  Status backResults();
  Expected<std::unique_ptr<StepState>> finish();
  /// What became of the step, as messages.
  void announce() const;

  SessionState &session_;
  const Driver &driver_;
  Heap &heap_;
  CUgraph graph_;
  const AdoptOptions &options_;
  StepState *before_;
  StepState *neighbour_;
  std::unique_ptr<GraphEditor> fills_; ///< what became of the graph's memset nodes, for good if all goes well
  std::unique_ptr<StepState> step_;
  std::optional<AccessFinder> finder_;
  std::vector<BlockId> stoodIn_;                   ///< blocks that had stand-ins
  std::set<BlockId> staying_;                      ///< blocks that are never private
  std::set<std::pair<BlockId, BlockId>> followed_; ///< see HiddenPointers
  bool nodesAreTimed_ = false;                     ///< on the device, before a plan for managed memory was made
  bool accessesAreKnown_ = false; ///< also those that no parameter shows, as far as a run of the step can tell
  std::optional<PlannedTogether> together_; ///< the others, if they are planned again
  std::optional<CompiledPlan> ownPlan_;     ///< made to see whether a shared boundary costs too much, which it did
};

} // namespace pumpgraph::runtime
