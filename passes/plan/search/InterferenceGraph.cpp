// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/InterferenceGraph.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace pumpgraph {

namespace {

/// Kinds that a kind meets, tried as the second of a clique with it, or beside it in a ring.
constexpr std::size_t mostSeeds = 64;
/// Kinds tried as the two of a ring that are across.
constexpr std::size_t mostAcross = 256;

std::uint64_t pagesOf(const std::vector<std::size_t> &kinds, const std::vector<std::uint64_t> &pages) {
  std::uint64_t sum = 0;
  for (std::size_t kind : kinds)
    sum += pages[kind];
  return sum;
}

} // namespace

KindGraph::KindGraph(const Timeline &timeline, Effort &effort) : effort_(effort) {
  std::map<std::vector<NodeIndex>, std::size_t> byUsers;
  for (std::size_t i = 0; i < timeline.pieces().size(); ++i) {
    const PieceIndex piece = static_cast<PieceIndex>(i);
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

void KindGraph::findWhoMeets(const std::map<std::vector<NodeIndex>, std::size_t> &byUsers, NodeIndex nodeCount) {
  std::vector<std::vector<std::size_t>> kindsAt(nodeCount);
  for (const auto &[nodes, kind] : byUsers)
    for (NodeIndex node : nodes)
      kindsAt[node].push_back(kind);
  meets_.assign(size(), Bits(size()));
  for (const std::vector<std::size_t> &kinds : kindsAt) {
    Bits together(size());
    for (std::size_t kind : kinds)
      together.set(kind);
    for (std::size_t kind : kinds)
      meets_[kind].add(together);
    effort_.spend((kinds.size() + 1) * together.words());
    if (effort_.isSpent())
      return;
  }
}

std::vector<std::size_t> KindGraph::byPages(const std::vector<std::uint64_t> &pages) const {
  std::vector<std::size_t> kinds(size());
  std::iota(kinds.begin(), kinds.end(), std::size_t{0});
  std::stable_sort(kinds.begin(), kinds.end(), [&](std::size_t a, std::size_t b) { return pages[a] > pages[b]; });
  effort_.spend(kinds.size() * static_cast<std::uint64_t>(1 + std::bit_width(kinds.size())));
  return kinds;
}

KindCrowd KindGraph::cliqueAround(std::size_t kind, const std::vector<std::uint64_t> &pages,
                                  std::uint64_t frames) const {
  std::vector<std::size_t> others = byPages(pages);
  std::erase_if(others, [&](std::size_t other) { return other == kind || !meet(kind, other); });
  KindCrowd best{{kind}, {}, pages[kind], frames};
  for (std::size_t i = 0; i < std::min(others.size(), mostSeeds) && !effort_.isSpent(); ++i) {
    std::vector<std::size_t> members{kind, others[i]};
    Bits meetAll = around(others[i]);
    for (std::size_t other : others)
      if (other != others[i] && meetAll[other]) {
        members.push_back(other);
        meetAll &= around(other);
      }
    effort_.spend(others.size() + members.size() * meetAll.words());
    if (const std::uint64_t sum = pagesOf(members, pages); sum > best.pages)
      best = {std::move(members), {}, sum, frames};
  }
  return best;
}

std::optional<KindCrowd> KindGraph::ringAround(std::size_t kind, const std::vector<std::uint64_t> &pages,
                                               std::uint64_t frames) const {
  const std::vector<std::size_t> heaviest = byPages(pages);
  std::vector<std::size_t> beside, across; // of `kind` in a ring
  for (std::size_t other : heaviest)
    if (other != kind && beside.size() < mostSeeds && meet(kind, other))
      beside.push_back(other);
    else if (across.size() < mostAcross && !meet(kind, other))
      across.push_back(other);
  std::uint64_t bestPages = 0;
  std::array<std::size_t, 5> best{};
  for (std::size_t i = 0; i < beside.size(); ++i)
    for (std::size_t j = i + 1; j < beside.size() && !effort_.isSpent(); ++j) {
      const std::size_t left = beside[i], right = beside[j];
      if (meet(left, right))
        continue;
      const std::uint64_t three = pages[kind] + pages[left] + pages[right];
      std::vector<std::size_t> byRight; // the heaviest first
      for (std::size_t other : across)
        if (meet(right, other) && !meet(left, other))
          byRight.push_back(other);
      effort_.spend(across.size());
      for (std::size_t byLeft : across) {
        if (byRight.empty() || three + pages[byLeft] + pages[byRight.front()] <= bestPages)
          break;
        if (!meet(left, byLeft) || meet(right, byLeft))
          continue;
        effort_.spend(byRight.size());
        const auto fifth =
            std::find_if(byRight.begin(), byRight.end(), [&](std::size_t other) { return meet(byLeft, other); });
        if (fifth == byRight.end() || three + pages[byLeft] + pages[*fifth] <= bestPages)
          continue;
        bestPages = three + pages[byLeft] + pages[*fifth];
        best = {kind, left, byLeft, *fifth, right};
      }
    }
  if (bestPages == 0)
    return std::nullopt;
  KindCrowd crowd;
  crowd.ring.assign(best.begin(), best.end());
  growRing(crowd, heaviest, pages, frames);
  return crowd;
}

void KindGraph::growRing(KindCrowd &crowd, const std::vector<std::size_t> &heaviest,
                         const std::vector<std::uint64_t> &pages, std::uint64_t frames) const {
  std::vector<std::size_t> &kinds = crowd.kinds = crowd.ring;
  for (std::size_t other : heaviest) {
    if (effort_.isSpent())
      break;
    if (std::find(kinds.begin(), kinds.end(), other) != kinds.end())
      continue;
    std::vector<std::size_t> apart;
    for (std::size_t member : kinds)
      if (!meet(other, member))
        apart.push_back(member);
    bool allMeet = true;
    std::uint64_t pairs = 0;
    for (std::size_t a = 0; a < apart.size() && allMeet; ++a)
      for (std::size_t b = a + 1; b < apart.size() && allMeet; ++b, ++pairs)
        allMeet = meet(apart[a], apart[b]);
    effort_.spend(2 * kinds.size() + pairs);
    if (allMeet)
      kinds.push_back(other);
  }
  crowd.pages = pagesOf(kinds, pages);
  crowd.mostPages = 2 * frames;
  for (std::size_t kind : kinds)
    if (std::all_of(kinds.begin(), kinds.end(), [&](std::size_t member) { return meet(kind, member); }))
      crowd.mostPages -= std::min(crowd.mostPages, pages[kind]); // in frames that no second one has
}

} // namespace pumpgraph
