// SPDX-License-Identifier: Apache-2.0
/// \file
/// The order of what happens in a group of frames: the transfers and edges of a draft (docs/design/planner.md, "The
/// pass").
#pragma once

#include "passes/plan/allocate/Draft.h"
#include "passes/plan/allocate/FrameGroups.h"
#include "passes/plan/allocate/PlannerInput.h"

#include <cstdint>
#include <vector>

namespace pumpgraph {

class TenureOrder {
public:
  /// Both are referred to.
  TenureOrder(const PlannerInput &input, Draft &draft)
      : input_(input), draft_(draft), captured_(input.timeline.nodeCount()) {}

  /// What follows happens at this node.
  void goTo(NodeIndex node) { now_ = node; }
  NodeIndex now() const { return now_; }

  bool isCaptured(DraftNode node) const { return node < captured_; }
  bool impliedBefore(DraftNode a, NodeIndex b) const { return isCaptured(a) && input_.order.completesBefore(a, b); }

  /// The node uses what is in the group. `delaysLeaving`: what leaves has to wait for it.
  void access(Group &group, bool delaysLeaving);
  /// Copies pages of the occupant to the host, beside those that only read them: the next tenure waits for both.
  void evict(Group &group, const PageRun &pages);
  void prefetch(Group &group, const PageRun &pages);
  /// From now on everything in the group comes after all that has happened in it.
  void drop(Group &group);
  /// After drop(): the pages' contents are given up.
  void discard(Group &group, const PageRun &pages);

  /// Whether the frames become free only when a copy to the host is over.
  bool endsWithEvict(const Group &group) const;

private:
  struct LastTransfer {
    bool isSet = false;
    std::uint32_t position = 0;
    NodeIndex decidedAt = 0;
    std::vector<DraftNode> after;
  };

  DraftNode transferAfter(Group &group, NodeKind kind, const PageRun &pages, const std::vector<DraftNode> &after);
  DraftNode transferNode(NodeKind kind, const PageRun &pages, const std::vector<DraftNode> &after);
  /// Everything in the group from now on comes after `barrier`.
  static void beginTenure(Group &group, std::vector<DraftNode> barrier);
  void precede(Group &group, DraftNode node);

  const PlannerInput &input_;
  Draft &draft_;
  NodeIndex captured_; ///< how many captured nodes there are
  NodeIndex now_ = 0;
  LastTransfer lastEvict_, lastPrefetch_;
};

} // namespace pumpgraph
