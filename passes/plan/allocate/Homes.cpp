// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/allocate/Homes.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pumpgraph {

Homes::Homes(const PlannerInput &input, PieceStates &states, std::vector<std::vector<std::int32_t>> &frames)
    : timeline_(input.timeline), states_(states),
      groups_(static_cast<std::uint32_t>(timeline_.exclusivePages()),
              static_cast<std::uint32_t>(input.frameCount - timeline_.exclusivePages())),
      frames_(frames) {}

GroupIndex Homes::groupOf(std::uint32_t frame, std::uint64_t frames) {
  GroupIndex group = groups_.holding(frame);
  if (const std::uint32_t before = frame - groups_[group].firstFrame; before > 0)
    group = split(group, before);
  if (frames < groups_[group].frameCount)
    split(group, static_cast<std::uint32_t>(frames));
  return group;
}

GroupIndex Homes::split(GroupIndex group, std::uint32_t frames) {
  const GroupIndex rest = groups_.split(group, frames);
  for (const Part &part : groups_[rest].parts) {
    std::vector<GroupIndex> &list = states_[part.piece].groups;
    list.insert(std::find(list.begin(), list.end(), group) + 1, rest);
  }
  rank(rest);
  return rest;
}

void Homes::give(GroupIndex index, PieceIndex piece, std::uint32_t page, bool hostCurrent) {
  Group &group = groups_[index];
  const Part part{piece, page, hostCurrent, states_.nextUseOf(piece)};
  group.parts.insert(firstAfter(group.parts.begin(), group.parts.end(), part.nextUse), part);
  states_[piece].groups.push_back(index);
  if (!timeline_.apartGroupsOf(piece).empty())
    keepApart(piece, group);
  const PageRun run = states_.pagesOf(group, part);
  for (std::uint32_t i = 0; i < run.pageCount; ++i)
    frames_[run.buffer][run.firstPage + i] = static_cast<std::int32_t>(group.firstFrame + i);
}

void Homes::keepApart(PieceIndex piece, Group &group) const {
  std::vector<std::uint32_t> both;
  std::ranges::set_union(group.apart, timeline_.apartGroupsOf(piece), std::back_inserter(both));
  group.apart = std::move(both);
}

void Homes::rank(GroupIndex index) {
  Group &group = groups_[index];
  Group::Standing standing = Group::Standing::Vacant;
  if (group.occupant) {
    const Part &part = *partOf(group, *group.occupant);
    standing = states_.leavesAnyway(part.piece) ? Group::Standing::Leaving
               : states_.mustBeSaved(part)      ? Group::Standing::Dirty
                                                : Group::Standing::Clean;
  }
  groups_.rank(index, group.parts.empty() ? neverUsed : group.parts.front().nextUse, standing);
}

void Homes::mergeNeighbours(PieceIndex piece) {
  std::vector<GroupIndex> &list = states_[piece].groups;
  const bool isRetired = states_.nextUseOf(piece) == neverUsed;
  std::size_t kept = 0;
  for (std::size_t i = 1; i < list.size(); ++i) {
    if (groups_.canMerge(list[kept], list[i])) {
      forget(list[i], piece);
      groups_.merge(list[kept], list[i]);
      continue;
    }
    list[++kept] = list[i];
  }
  if (!list.empty())
    list.resize(kept + 1);
  if (!isRetired)
    return;
  for (GroupIndex group : list)
    groups_.mergeUnusedAround(group);
  list.clear();
}

/// `gone` is about to become part of another group: its tenants other than `except` must not name it any more.
void Homes::forget(GroupIndex gone, PieceIndex except) {
  for (const Part &part : groups_[gone].parts)
    if (part.piece != except)
      std::erase(states_[part.piece].groups, gone);
}

Homes::Parts::iterator Homes::partOf(Group &group, PieceIndex piece) {
  return std::find_if(group.parts.begin(), group.parts.end(), [&](const Part &p) { return p.piece == piece; });
}

void Homes::postpone(Group &group, Parts::iterator part, std::uint32_t nextUse) {
  part->nextUse = nextUse;
  std::rotate(part, part + 1, firstAfter(part + 1, group.parts.end(), nextUse));
}

/// The first that is used after the node. Mostly it is among the first of all: no search by halves.
Homes::Parts::iterator Homes::firstAfter(Parts::iterator begin, Parts::iterator end, std::uint32_t node) {
  return std::find_if(begin, end, [&](const Part &part) { return part.nextUse > node; });
}

} // namespace pumpgraph
