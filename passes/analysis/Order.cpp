// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Order.h"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

namespace pumpgraph {

std::vector<std::vector<NodeIndex>> fullPredecessors(const Description &description) {
  std::vector<std::vector<NodeIndex>> result(description.nodes.size());
  for (const Edge &edge : description.edges)
    if (edge.kind == EdgeKind::Full)
      result[edge.to].push_back(edge.from);
  return result;
}

std::vector<std::uint32_t> successorCounts(const std::vector<std::vector<NodeIndex>> &predecessors) {
  std::vector<std::uint32_t> counts(predecessors.size(), 0);
  for (const std::vector<NodeIndex> &list : predecessors)
    for (NodeIndex before : list)
      ++counts[before];
  return counts;
}

Order::Order(const Description &description) {
  places_.reserve(description.nodes.size());
  const std::vector<std::vector<NodeIndex>> predecessors = fullPredecessors(description);
  const std::vector<std::uint32_t> counts = successorCounts(predecessors);
  for (const std::vector<NodeIndex> &list : predecessors)
    append(list, counts);
}

bool Order::completesBefore(NodeIndex a, NodeIndex b) const {
  const Place &first = places_[a];
  const Place &second = places_[b];
  if (first.chain == second.chain)
    return first.position < second.position;
  const auto begin = ticks_.begin() + static_cast<std::ptrdiff_t>(second.others.begin);
  const auto end = ticks_.begin() + static_cast<std::ptrdiff_t>(second.others.end);
  const auto tick =
      std::lower_bound(begin, end, first.chain, [](const Tick &t, std::uint32_t chain) { return t.chain < chain; });
  return tick != end && tick->chain == first.chain && tick->position >= first.position;
}

/// Joins what `predecessor` knows, and that it has completed itself, into `clock`.
void Order::mergeInto(std::vector<Tick> &clock, NodeIndex predecessor) {
  const Place &place = places_[predecessor];
  const Tick own{place.chain, place.position};
  const auto byChain = [](const Tick &a, const Tick &b) { return a.chain < b.chain; };
  if (clock.empty()) {
    clock.assign(ticks_.begin() + static_cast<std::ptrdiff_t>(place.others.begin),
                 ticks_.begin() + static_cast<std::ptrdiff_t>(place.others.end));
    clock.insert(std::lower_bound(clock.begin(), clock.end(), own, byChain), own);
    return;
  }
  scratch_.clear();
  std::size_t mine = 0;
  const auto take = [&](const Tick &tick) {
    while (mine < clock.size() && clock[mine].chain < tick.chain)
      scratch_.push_back(clock[mine++]);
    if (mine == clock.size() || clock[mine].chain != tick.chain) {
      scratch_.push_back(tick);
      return;
    }
    scratch_.push_back({tick.chain, std::max(tick.position, clock[mine++].position)});
  };
  bool ownTaken = false;
  for (std::size_t i = place.others.begin; i < place.others.end; ++i) {
    if (!ownTaken && own.chain < ticks_[i].chain) {
      take(own);
      ownTaken = true;
    }
    take(ticks_[i]);
  }
  if (!ownTaken)
    take(own);
  scratch_.insert(scratch_.end(), clock.begin() + static_cast<std::ptrdiff_t>(mine), clock.end());
  clock.swap(scratch_);
}

/// Extends a chain whose last node completes before the new one: rather a direct predecessor's, and of those the one
/// that fewest others wait for, the latest if that is a tie. All of one lane.
std::uint32_t Order::chooseChain(std::span<const NodeIndex> predecessors,
                                 std::span<const std::uint32_t> successorCounts, const std::vector<Tick> &clock,
                                 std::uint8_t lane) {
  const auto rank = [&](NodeIndex p) {
    return std::pair(successorCounts.empty() ? 0 : successorCounts[p], static_cast<NodeIndex>(places_.size()) - p);
  };
  const NodeIndex none = static_cast<NodeIndex>(places_.size());
  NodeIndex best = none;
  for (NodeIndex p : predecessors)
    if (isTail(p) && lanes_[places_[p].chain] == lane && (best == none || rank(p) < rank(best)))
      best = p;
  if (best != none)
    return places_[best].chain;
  for (const Tick &tick : clock)
    if (tails_[tick.chain] == tick.position && lanes_[tick.chain] == lane)
      return tick.chain;
  tails_.push_back(UINT32_MAX); // the first node makes it 0
  lanes_.push_back(lane);
  return static_cast<std::uint32_t>(tails_.size() - 1);
}

NodeIndex Order::append(std::span<const NodeIndex> predecessors, std::span<const std::uint32_t> successorCounts,
                        std::uint8_t lane) {
  const NodeIndex index = static_cast<NodeIndex>(places_.size());
  // On a chain, the last node knows all that its successor needs to know.
  NodeIndex latest = 0;
  for (NodeIndex p : predecessors) {
    assert(p < index && "nodes are appended in topological order");
    latest = std::max(latest, p);
  }
  const bool knowsAll = !predecessors.empty() && isTail(latest) && lanes_[places_[latest].chain] == lane &&
                        std::all_of(predecessors.begin(), predecessors.end(),
                                    [&](NodeIndex p) { return p == latest || completesBefore(p, latest); });
  if (knowsAll) {
    Place place = places_[latest];
    tails_[place.chain] = ++place.position;
    places_.push_back(place);
    return index;
  }

  std::vector<Tick> clock;
  for (NodeIndex p : predecessors)
    mergeInto(clock, p);
  const std::uint32_t chain = chooseChain(predecessors, successorCounts, clock, lane);
  std::erase_if(clock, [&](const Tick &tick) { return tick.chain == chain; });
  const Clock others{ticks_.size(), ticks_.size() + clock.size()};
  ticks_.insert(ticks_.end(), clock.begin(), clock.end());
  places_.push_back({chain, ++tails_[chain], others});
  return index;
}

void sortEdges(std::vector<Edge> &edges) {
  std::sort(edges.begin(), edges.end(), [](const Edge &a, const Edge &b) {
    return std::tuple(a.from, a.to, a.kind) < std::tuple(b.from, b.to, b.kind);
  });
  const auto joinsTheSame = [](const Edge &a, const Edge &b) { return a.from == b.from && a.to == b.to; };
  edges.erase(std::unique(edges.begin(), edges.end(), joinsTheSame), edges.end());
}

} // namespace pumpgraph
