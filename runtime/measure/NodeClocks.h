// SPDX-License-Identifier: Apache-2.0
/// \file
/// Clocks between the nodes of a step's graph.
#pragma once

#include "runtime/state/StepState.h"

#include <functional>
#include <vector>

namespace pumpgraph::runtime {

/// Chains the captured nodes of a graph with clocks between them, and reads the clocks after each launch. Copies that a
/// plan added stay beside the chain. Clocks keep nodes apart, and cost more than a short kernel. Where independent
/// nodes are also timed together, that cost is known.
class NodeClocks {
public:
  enum class Where : std::uint8_t { AroundEach, WhereNodesWait };

  /// Consecutive nodes, with clocks ahead of the first and after the last.
  struct Run {
    std::size_t before = 0; ///< positions among the clocks
    std::size_t after = 0;
    std::vector<std::size_t> nodes = {}; ///< captured positions; a node that runs again has several places
    double us = 0;                       ///< median, with the cost of the two clocks
  };

  /// For `graph`, which is the step's or a copy of it.
  NodeClocks(const StepState &step, CUgraph graph);
  /// Takes the clocks out of the graph, as undo() does, unless they are kept.
  ~NodeClocks();
  NodeClocks(const NodeClocks &) = delete;
  NodeClocks &operator=(const NodeClocks &) = delete;

  Status add(Where where);
  Status undo();
  /// The graph keeps the clocks: it goes before they do.
  void keep() { editor_.commit(); }

  /// Notes the times of a finished launch.
  Status read();
  /// Forgets all times, as after a launch that warms up.
  void forget();
  /// The runs, each with its median time.
  std::vector<Run> runs() const;

private:
  Expected<CUgraphNode> inGraph(CUgraphNode node) const;
  Status addClock(CUgraphNode &clock);
  void beginRun();
  Status addNode(CUgraphNode &last, CUgraphNode original, std::size_t captured, bool follows);
  Status endRun(CUgraphNode &last);
  /// Of a step that is not rewritten; two clocks with nothing between them are at the end.
  Status chainCapturedNodes();
  Status chainRewrittenNodes(Where where);

  const StepState &step_;
  const Driver &driver_;
  CUgraph graph_;
  bool isCopy_;
  GraphEditor editor_;
  std::vector<CUevent> clocks_;
  std::vector<Run> runs_;
  std::vector<std::vector<double>> times_; ///< by run, of all launches that were read
};

/// What clocks cost, off `costsUs`, by captured position: every one was measured with a clock before and after the
/// node, but in the runs `together` there are none in between. The nodes of a run get what they take together; one that
/// is in several places gets the mean.
void takeOffClocks(std::vector<double> &costsUs, const std::vector<NodeClocks::Run> &together);

/// The time of each captured node, microseconds, by captured position. `apart`: with clocks around each; `together`:
/// with clocks where nodes wait, empty for a step that moves nothing; `stepUs`: of a whole replay. Of a node that runs
/// again, the mean.
std::vector<double> nodeTimes(const StepState &step, const std::vector<NodeClocks::Run> &apart,
                              const std::vector<NodeClocks::Run> &together, double stepUs);

} // namespace pumpgraph::runtime
