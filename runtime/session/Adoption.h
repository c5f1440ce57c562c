// SPDX-License-Identifier: Apache-2.0
/// \file
/// The way from a captured graph to a step that can be replayed.
#pragma once

#include "runtime/session/Step.h"

namespace pumpgraph::runtime {

/// Lifts a graph, plans it, gives its buffers their memory, rewrites it, checks what came out. When run() fails, the
/// graph is as it was, and its buffers have memory of their own if anything had changed.
class Adoption {
public:
  Adoption(Session &session, CUgraph graph, const AdoptOptions &options)
      : session_(session), driver_(*session.driver_), heap_(*session.heap_), graph_(graph), options_(options) {}

  Expected<std::unique_ptr<Step>> run();

private:
  Status lift();
  Status describe();
  /// Why the graph cannot be rewritten, whatever the budget; empty if it can.
  std::string refusal() const;
  Status checkAgainstOtherSteps() const;
  /// The session's device frames that hold other allocations than the step's.
  std::uint64_t otherFrames() const;
  std::string othersText() const;
  /// Gives up what only the cache and the capture's dead hold.
  Status makeRoom();
  pumpgraph_compiler_options compilerOptions() const;
  Status statusOf(pumpgraph_compiler_status compiled, const std::string &message) const;
  Status plan(const Compiler &compiler);
  Status rewrite(const Compiler &compiler);
  Status lowerAndCheck(GraphEditor &editor, const Compiler &compiler);
  Status leaveAsCaptured(std::string reason);
  Status backResults();
  Expected<std::unique_ptr<Step>> finish();
  void writeReport();

  Session &session_;
  const Driver &driver_;
  Heap &heap_;
  CUgraph graph_;
  const AdoptOptions &options_;
  std::unique_ptr<Step> step_;
  LiftedGraph lifted_;
  std::optional<AccessFinder> finder_;
  Description lowered_;
  std::uint64_t otherFrames_ = 0; ///< when the plan was made
  std::string compilerReport_;
};

} // namespace pumpgraph::runtime
