// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/allocate/TenureOrder.h"

#include <algorithm>
#include <utility>

namespace pumpgraph {

void TenureOrder::access(Group &group, bool delaysLeaving) {
  const auto isImplied = [&](DraftNode a) { return a == now_ || impliedBefore(a, now_); };
  if (std::none_of(group.accesses.begin(), group.accesses.end(), isImplied)) {
    for (DraftNode node : group.barrier)
      if (!impliedBefore(node, now_))
        draft_.edges.push_back({node, now_});
    precede(group, now_);
  }
  std::erase_if(group.accesses, isImplied);
  group.accesses.push_back(now_);
  if (!delaysLeaving)
    return;
  std::erase_if(group.writes, isImplied);
  group.writes.push_back(now_);
}

void TenureOrder::evict(Group &group, const PageRun &pages) {
  const std::vector<DraftNode> &after = group.writes.empty() ? group.barrier : group.writes;
  std::vector<DraftNode> barrier{transferAfter(group, NodeKind::Evict, pages, after)};
  for (DraftNode access : group.accesses)
    if (std::find(after.begin(), after.end(), access) == after.end())
      barrier.push_back(access);
  beginTenure(group, std::move(barrier));
}

void TenureOrder::prefetch(Group &group, const PageRun &pages) {
  drop(group);
  beginTenure(group, {transferAfter(group, NodeKind::Prefetch, pages, group.barrier)});
}

void TenureOrder::drop(Group &group) {
  if (!group.accesses.empty())
    beginTenure(group, std::move(group.accesses));
}

void TenureOrder::discard(Group &group, const PageRun &pages) {
  draft_.discards.push_back({pages, group.barrier, {}});
  group.discards.push_back(static_cast<std::uint32_t>(draft_.discards.size() - 1));
}

bool TenureOrder::endsWithEvict(const Group &group) const {
  return std::any_of(group.barrier.begin(), group.barrier.end(), [&](DraftNode node) {
    return !isCaptured(node) && draft_.transfers[node - captured_].kind == NodeKind::Evict;
  });
}

DraftNode TenureOrder::transferAfter(Group &group, NodeKind kind, const PageRun &pages,
                                     const std::vector<DraftNode> &after) {
  const DraftNode node = transferNode(kind, pages, after);
  for (DraftNode before : after)
    draft_.edges.push_back({before, node});
  precede(group, node);
  return node;
}

/// The transfer's node: the last one's, made longer, if both lie side by side in one buffer and wait for the same.
DraftNode TenureOrder::transferNode(NodeKind kind, const PageRun &pages, const std::vector<DraftNode> &after) {
  LastTransfer &last = kind == NodeKind::Evict ? lastEvict_ : lastPrefetch_;
  if (last.isSet && last.decidedAt == now_ && last.after == after) {
    PageRun &run = draft_.transfers[last.position].pages;
    if (run.buffer == pages.buffer && run.firstPage + run.pageCount == pages.firstPage &&
        run.pageCount + pages.pageCount <= mostPagesOfTransfer(input_.timeline)) {
      run.pageCount += pages.pageCount;
      return captured_ + last.position;
    }
  }
  draft_.transfers.push_back({kind, pages});
  last.isSet = true;
  last.position = static_cast<std::uint32_t>(draft_.transfers.size() - 1);
  last.decidedAt = now_;
  last.after = after;
  return captured_ + last.position;
}

void TenureOrder::beginTenure(Group &group, std::vector<DraftNode> barrier) {
  group.barrier = std::move(barrier);
  group.accesses.clear();
  group.writes.clear();
  group.discards.clear();
}

void TenureOrder::precede(Group &group, DraftNode node) {
  for (std::uint32_t discard : group.discards)
    draft_.discards[discard].before.push_back(node);
}

} // namespace pumpgraph
