// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/InterferenceGraph.h"

#include "passes/analysis/Indices.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pumpgraph {

namespace {

/// Classes tried as the second of a clique.
constexpr std::size_t mostSeeds = 64;

std::uint64_t pagesOf(const std::vector<std::size_t> &classes, const std::vector<std::uint64_t> &pages) {
  std::uint64_t sum = 0;
  for (std::size_t one : classes)
    sum += pages[one];
  return sum;
}

} // namespace

InterferenceGraph::InterferenceGraph(const Timeline &timeline, Effort &effort) : effort_(effort) {
  std::map<std::vector<NodeIndex>, std::size_t> byUsers;
  for (const PieceIndex piece : indicesOf(timeline.pieces())) {
    std::vector<NodeIndex> users;
    for (const Use &use : timeline.usesOf(piece))
      users.push_back(use.node);
    effort_.spend(users.size());
    if (users.empty())
      continue;
    for (std::uint32_t group : timeline.apartGroupsOf(piece)) // as if one more node used them
      users.push_back(timeline.nodeCount() + group);
    const auto [found, isNew] = byUsers.try_emplace(std::move(users), pieces_.size());
    if (isNew)
      pieces_.emplace_back();
    pieces_[found->second].push_back(piece);
  }
  if (!isTooLarge())
    findWhoMeets(byUsers, timeline.nodeCount() + static_cast<NodeIndex>(timeline.apartPieces().size()));
}

void InterferenceGraph::findWhoMeets(const std::map<std::vector<NodeIndex>, std::size_t> &byUsers,
                                     NodeIndex nodeCount) {
  std::vector<std::vector<std::size_t>> classesAt(nodeCount);
  for (const auto &[nodes, one] : byUsers)
    for (NodeIndex node : nodes)
      classesAt[node].push_back(one);
  meets_.assign(size(), Bits(size()));
  for (const std::vector<std::size_t> &classes : classesAt) {
    Bits together(size());
    for (std::size_t one : classes)
      together.set(one);
    for (std::size_t one : classes)
      meets_[one].add(together);
    effort_.spend((classes.size() + 1) * together.words());
    if (effort_.isSpent())
      return;
  }
}

std::vector<std::size_t> InterferenceGraph::byPages(const std::vector<std::uint64_t> &pages) const {
  std::vector<std::size_t> classes(size());
  std::iota(classes.begin(), classes.end(), std::size_t{0});
  std::stable_sort(classes.begin(), classes.end(), [&](std::size_t a, std::size_t b) { return pages[a] > pages[b]; });
  effort_.spend(classes.size() * static_cast<std::uint64_t>(1 + std::bit_width(classes.size())));
  return classes;
}

Clique InterferenceGraph::cliqueAround(std::size_t one, const std::vector<std::uint64_t> &pages) const {
  std::vector<std::size_t> others = byPages(pages);
  std::erase_if(others, [&](std::size_t other) { return other == one || !meet(one, other); });
  Clique best{{one}, pages[one]};
  for (std::size_t i = 0; i < std::min(others.size(), mostSeeds) && !effort_.isSpent(); ++i) {
    std::vector<std::size_t> members{one, others[i]};
    Bits meetAll = around(others[i]);
    for (std::size_t other : others)
      if (other != others[i] && meetAll[other]) {
        members.push_back(other);
        meetAll &= around(other);
      }
    effort_.spend(others.size() + members.size() * meetAll.words());
    if (const std::uint64_t sum = pagesOf(members, pages); sum > best.pages)
      best = {std::move(members), sum};
  }
  return best;
}

} // namespace pumpgraph
