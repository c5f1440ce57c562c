// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/allocate/FrameGroups.h"

#include <algorithm>
#include <cassert>

namespace pumpgraph {

void Ranking::insert(std::uint32_t nextUse, GroupIndex group) {
  if (nextUse != neverUsed && nextUse >= byNode_.size()) {
    byNode_.resize(nextUse + 1);
    occupied_.resize(nextUse / 64 + 1, 0);
  }
  std::vector<GroupIndex> &groups = nextUse == neverUsed ? never_ : byNode_[nextUse];
  groups.insert(std::lower_bound(groups.begin(), groups.end(), group), group);
  if (nextUse != neverUsed)
    occupied_[nextUse / 64] |= std::uint64_t{1} << nextUse % 64;
}

void Ranking::erase(std::uint32_t nextUse, GroupIndex group) {
  std::vector<GroupIndex> &groups = nextUse == neverUsed ? never_ : byNode_[nextUse];
  const auto found = std::lower_bound(groups.begin(), groups.end(), group);
  assert(found != groups.end() && *found == group && "the group was entered with this next use");
  groups.erase(found);
  if (nextUse != neverUsed && groups.empty())
    occupied_[nextUse / 64] &= ~(std::uint64_t{1} << nextUse % 64);
}

FrameGroups::FrameGroups(std::uint32_t firstFrame, std::uint32_t frameCount)
    : firstFrame_(firstFrame), groupBeginningAt_(frameCount), groupEndingAt_(frameCount) {
  if (frameCount == 0)
    return;
  Group all;
  all.firstFrame = firstFrame;
  all.frameCount = frameCount;
  const GroupIndex index = groups_.add(std::move(all));
  groupBeginningAt_[0] = index;
  groupEndingAt_[frameCount - 1] = index;
  enter(index);
}

std::optional<GroupIndex> FrameGroups::anyUnused(std::uint32_t firstFrame) const {
  for (GroupIndex index : ranking(Group::Standing::Vacant).neverUsedAgain())
    if (groups_[index].parts.empty() && groups_[index].firstFrame >= firstFrame)
      return index;
  return std::nullopt;
}

GroupIndex FrameGroups::split(GroupIndex index, std::uint32_t frames) {
  Group rest = groups_[index];
  assert(frames > 0 && frames < rest.frameCount);
  rest.firstFrame += frames;
  rest.frameCount -= frames;
  for (Part &part : rest.parts)
    part.firstPage += frames;
  groups_[index].frameCount = frames;
  const std::uint32_t restBegin = rest.firstFrame - firstFrame_;
  const std::uint32_t restEnd = restBegin + rest.frameCount;
  const GroupIndex restIndex = groups_.add(std::move(rest));
  groupEndingAt_[restBegin - 1] = index;
  groupBeginningAt_[restBegin] = restIndex;
  groupEndingAt_[restEnd - 1] = restIndex;
  enter(restIndex);
  return restIndex;
}

GroupIndex FrameGroups::holding(std::uint32_t frame) const {
  const auto holds = [&](const Group &g) { return g.firstFrame <= frame && frame < g.firstFrame + g.frameCount; };
  std::uint32_t begin = frame - firstFrame_;
  // Where no group begins the array holds some other group or a stale one: go back to the one around this frame.
  while (!holds(groups_[groupBeginningAt_[begin]]))
    --begin;
  return groupBeginningAt_[begin];
}

bool FrameGroups::canMerge(GroupIndex first, GroupIndex second) const {
  const Group &a = groups_[first];
  const Group &b = groups_[second];
  if (a.firstFrame + a.frameCount != b.firstFrame || a.apart != b.apart || a.occupant != b.occupant ||
      a.parts.size() != b.parts.size() || a.accesses != b.accesses || (a.accesses.empty() && a.barrier != b.barrier))
    return false;
  return std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), [&](const Part &part, const Part &other) {
    return other.piece == part.piece && other.firstPage == part.firstPage + a.frameCount &&
           other.hostCurrent == part.hostCurrent;
  });
}

namespace {

void unite(std::vector<std::uint32_t> &list, const std::vector<std::uint32_t> &more) {
  for (std::uint32_t each : more)
    if (std::find(list.begin(), list.end(), each) == list.end())
      list.push_back(each);
}

} // namespace

void FrameGroups::merge(GroupIndex first, GroupIndex second) {
  leave(first);
  leave(second);
  Group &a = groups_[first];
  Group &b = groups_[second];
  a.frameCount += b.frameCount;
  if (a.writes.empty() != b.writes.empty())
    unite(a.writes.empty() ? a.writes : b.writes, a.writes.empty() ? a.barrier : b.barrier);
  unite(a.writes, b.writes);
  unite(a.barrier, b.barrier);
  unite(a.discards, b.discards);
  a.lastUseUs = std::max(a.lastUseUs, b.lastUseUs);
  a.nextUse = std::min(a.nextUse, b.nextUse);
  const std::uint32_t last = a.firstFrame + a.frameCount - 1 - firstFrame_;
  groupEndingAt_[last] = first;
  b = Group();
  enter(first);
}

void FrameGroups::mergeUnusedAround(GroupIndex index) {
  if (groups_[index].frameCount == 0 || !groups_[index].parts.empty())
    return;
  const std::uint32_t end = groups_[index].firstFrame + groups_[index].frameCount - firstFrame_;
  if (end < groupBeginningAt_.size() && canMerge(index, groupBeginningAt_[end]))
    merge(index, groupBeginningAt_[end]);
  const std::uint32_t begin = groups_[index].firstFrame - firstFrame_;
  if (begin > 0 && canMerge(groupEndingAt_[begin - 1], index))
    merge(groupEndingAt_[begin - 1], index);
}

void FrameGroups::rank(GroupIndex index, std::uint32_t nextUse, Group::Standing standing) {
  Group &group = groups_[index];
  if (group.nextUse == nextUse && group.standing == standing)
    return;
  leave(index);
  group.nextUse = nextUse;
  group.standing = standing;
  enter(index);
}

} // namespace pumpgraph
