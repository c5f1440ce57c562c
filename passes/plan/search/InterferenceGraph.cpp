// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/InterferenceGraph.h"

#include "passes/analysis/Indices.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace pumpgraph {

namespace {

/// Classes tried as the second of a clique, or beside or across one in an odd cycle.
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

ClassLimit InterferenceGraph::cliqueAround(std::size_t one, const std::vector<std::uint64_t> &pages,
                                           std::uint64_t frames) const {
  std::vector<std::size_t> others = byPages(pages);
  std::erase_if(others, [&](std::size_t other) { return other == one || !meet(one, other); });
  ClassLimit best{{one}, {}, pages[one], frames};
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
      best = {std::move(members), {}, sum, frames};
  }
  return best;
}

std::optional<ClassLimit> InterferenceGraph::oddCycleAround(std::size_t one, const std::vector<std::uint64_t> &pages,
                                                            std::uint64_t frames) const {
  const std::vector<std::size_t> heaviest = byPages(pages);
  std::vector<std::size_t> beside, across; // of `one` in an odd cycle
  for (std::size_t other : heaviest)
    if (other != one && beside.size() < mostSeeds && meet(one, other))
      beside.push_back(other);
    else if (across.size() < mostSeeds && !meet(one, other))
      across.push_back(other);
  std::uint64_t bestPages = 0;
  std::array<std::size_t, 5> best{};
  for (std::size_t i = 0; i < beside.size(); ++i)
    for (std::size_t j = i + 1; j < beside.size() && !effort_.isSpent(); ++j) {
      const std::size_t left = beside[i], right = beside[j];
      if (meet(left, right))
        continue;
      const std::uint64_t three = pages[one] + pages[left] + pages[right];
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
        best = {one, left, byLeft, *fifth, right};
      }
    }
  if (bestPages == 0)
    return std::nullopt;
  ClassLimit limit;
  limit.oddCycle.assign(best.begin(), best.end());
  growOddCycle(limit, heaviest, pages, frames);
  return limit;
}

void InterferenceGraph::growOddCycle(ClassLimit &limit, const std::vector<std::size_t> &heaviest,
                                     const std::vector<std::uint64_t> &pages, std::uint64_t frames) const {
  std::vector<std::size_t> &classes = limit.classes = limit.oddCycle;
  for (std::size_t other : heaviest) {
    if (effort_.isSpent())
      break;
    if (std::find(classes.begin(), classes.end(), other) != classes.end())
      continue;
    std::vector<std::size_t> apart;
    for (std::size_t member : classes)
      if (!meet(other, member))
        apart.push_back(member);
    bool allMeet = true;
    std::uint64_t pairs = 0;
    for (std::size_t a = 0; a < apart.size() && allMeet; ++a)
      for (std::size_t b = a + 1; b < apart.size() && allMeet; ++b, ++pairs)
        allMeet = meet(apart[a], apart[b]);
    effort_.spend(2 * classes.size() + pairs);
    if (allMeet)
      classes.push_back(other);
  }
  limit.pages = pagesOf(classes, pages);
  limit.mostPages = 2 * frames;
  for (std::size_t one : classes)
    if (std::all_of(classes.begin(), classes.end(), [&](std::size_t member) { return meet(one, member); }))
      limit.mostPages -= std::min(limit.mostPages, pages[one]); // in frames that no second one has
}

} // namespace pumpgraph
