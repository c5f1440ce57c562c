// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline/HostingGroups.h"

#include "passes/plan/price/HostedPages.h"
#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <map>
#include <utility>

namespace pumpgraph {

namespace {

std::uint64_t bytesOf(const HostingGroup &group) {
  std::uint64_t bytes = 0;
  for (const BufferPart &part : group)
    bytes += part.range.size;
  return bytes;
}

/// The second is empty if it stays whole.
std::pair<HostingGroup, HostingGroup> halvesOf(const HostingGroup &group, std::uint64_t pageBytes,
                                               std::uint64_t leastBytes) {
  if (group.size() > 1) {
    const auto middle = group.begin() + static_cast<std::ptrdiff_t>((group.size() + 1) / 2);
    return {HostingGroup(group.begin(), middle), HostingGroup(middle, group.end())};
  }
  const auto &[buffer, range] = group.front();
  const std::uint64_t front = range.size / pageBytes / 2 * pageBytes;
  if (front == 0 || front < leastBytes)
    return {group, {}};
  return {{{buffer, {range.offset, front}}}, {{buffer, {range.offset + front, range.size - front}}}};
}

} // namespace

std::vector<HostingGroup> groupsOfBuffers(const Description &step, const std::vector<BufferIndex> &buffers,
                                          std::size_t most) {
  std::vector<std::vector<std::uint64_t>> use(step.buffers.size()); // how each is used
  std::vector<BufferIndex> byFirstUse;
  for (const Node &node : step.nodes)
    for (const Access &access : node.accesses) {
      if (use[access.buffer].empty()) {
        const Buffer &buffer = step.buffers[access.buffer];
        use[access.buffer] = {buffer.size, buffer.liveIn, buffer.liveOut};
        byFirstUse.push_back(access.buffer);
      }
      use[access.buffer].push_back(reliableMay(access));
    }
  const std::vector<bool> can = canBeHostedAsAWhole(step);
  std::vector<HostingGroup> groups;
  std::map<std::vector<std::uint64_t>, std::size_t> groupOf;
  for (const BufferIndex buffer : byFirstUse) {
    if (!can[buffer] || !std::binary_search(buffers.begin(), buffers.end(), buffer))
      continue;
    const auto [group, isNew] = groupOf.try_emplace(use[buffer], groups.size());
    if (isNew)
      groups.emplace_back();
    groups[group->second].push_back({buffer, {0, step.buffers[buffer].size}});
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const HostingGroup &a, const HostingGroup &b) { return bytesOf(a) > bytesOf(b); });
  groups.resize(std::min(groups.size(), most));
  return groups;
}

HostingGroups inHalves(const HostingGroups &whole, std::uint64_t pageBytes, std::uint64_t leastBytes,
                       std::size_t most) {
  HostingGroups halves;
  auto chosen = whole.chosen.begin();
  for (std::size_t i = 0; i < whole.groups.size(); ++i) {
    const bool isChosen = chosen != whole.chosen.end() && *chosen == i;
    chosen += isChosen;
    const bool hasRoom = halves.groups.size() + (whole.groups.size() - i) < most;
    auto [first, second] =
        hasRoom ? halvesOf(whole.groups[i], pageBytes, leastBytes) : std::pair(whole.groups[i], HostingGroup());
    for (HostingGroup *half : {&first, &second}) {
      if (half->empty())
        continue;
      if (isChosen)
        halves.chosen.push_back(static_cast<CandidateIndex>(halves.groups.size()));
      halves.groups.push_back(std::move(*half));
    }
  }
  return halves;
}

HostedSet fromTheFront(const std::vector<HostingGroup> &groups, HostedSet set) {
  CandidateIndex free = 0; // the first that is not taken yet
  for (CandidateIndex &candidate : set) {
    while (candidate > free && groups[candidate - 1].front().buffer == groups[candidate].front().buffer)
      --candidate;
    free = candidate + 1;
  }
  return set;
}

} // namespace pumpgraph
