// SPDX-License-Identifier: Apache-2.0
#include "passes/lower/PageStays.h"

#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <tuple>

namespace pumpgraph {

PageStays::PageStays(const Description &captured, const Description &planned)
    : captured_(captured), planned_(planned), order_(captured) {
  findPages();
  // Where the live values fit, the dead ones stay where they are: the captured step runs as it would alone.
  if (std::any_of(planned.nodes.begin(), planned.nodes.end(),
                  [](const Node &node) { return movesUp(node.kind) || movesDown(node.kind); }))
    findStays();
}

void PageStays::findPages() {
  std::vector<std::vector<PageId>> ids(captured_.buffers.size());
  for (BufferIndex buffer = 0; buffer < captured_.buffers.size(); ++buffer) {
    const std::vector<std::int32_t> &frames = planned_.buffers[buffer].frames;
    if (!captured_.buffers[buffer].isPrivate)
      continue;
    for (std::uint64_t index = 0; index < frames.size(); ++index) {
      ids[buffer].push_back(static_cast<PageId>(pages_.size()));
      pages_.push_back({buffer, index, {}});
      if (frames[index] != noFrame)
        tenants_[frames[index]].push_back(ids[buffer].back());
    }
  }
  for (NodeIndex node = 0; node < captured_.nodes.size(); ++node)
    for (const Access &access : captured_.nodes[node].accesses) {
      if (ids[access.buffer].empty() || access.range.size == 0)
        continue;
      const std::uint64_t last = (access.range.end() - 1) / captured_.pageBytes;
      for (std::uint64_t index = access.range.offset / captured_.pageBytes; index <= last; ++index) {
        Nodes &uses = pages_[ids[access.buffer][index]].uses;
        if (uses.empty() || uses.back() != node)
          uses.push_back(node);
      }
    }
}

void PageStays::findStays() {
  for (auto &[frame, tenants] : tenants_) {
    std::vector<std::tuple<NodeIndex, PageId, std::size_t>> uses;
    for (const PageId page : tenants)
      for (std::size_t use = 0; use < pages_[page].uses.size(); ++use)
        uses.push_back({pages_[page].uses[use], page, use});
    std::sort(uses.begin(), uses.end());
    std::vector<Stay> &stays = stays_.emplace_back();
    for (const auto &[node, page, use] : uses) {
      if (stays.empty() || stays.back().page != page)
        stays.push_back({page, use, use, {}});
      stays.back().lastUse = use;
    }
  }
}

Range PageStays::rangeOf(const Page &page) const {
  const std::uint64_t offset = page.index * captured_.pageBytes;
  return {offset, std::min(captured_.pageBytes, captured_.buffers[page.buffer].size - offset)};
}

bool PageStays::overwrites(NodeIndex node, const Page &page) const {
  const Range range = rangeOf(page);
  bool covered = false;
  for (const Access &access : captured_.nodes[node].accesses) {
    if (access.buffer != page.buffer || !access.range.overlaps(range))
      continue;
    const bool whole = access.range.offset <= range.offset && range.end() <= access.range.end();
    if (whole && reliableMust(access) == modeWrite)
      covered = true;
    else
      return false;
  }
  return covered;
}

bool PageStays::mayWrite(NodeIndex node, const Page &page) const {
  const Range range = rangeOf(page);
  return std::any_of(
      captured_.nodes[node].accesses.begin(), captured_.nodes[node].accesses.end(), [&](const Access &access) {
        return access.buffer == page.buffer && access.range.overlaps(range) && (reliableMay(access) & modeWrite) != 0;
      });
}

bool PageStays::needsItsValue(const Stay &stay) const {
  const Page &page = pages_[stay.page];
  const auto first = page.uses.begin() + static_cast<std::ptrdiff_t>(stay.firstUse);
  const bool hasValue = captured_.buffers[page.buffer].liveIn ||
                        std::any_of(page.uses.begin(), first, [&](NodeIndex n) { return mayWrite(n, page); });
  return hasValue && !overwrites(*first, page);
}

bool PageStays::isDeadAfter(const Stay &stay, std::optional<NodeIndex> &next) const {
  const Page &page = pages_[stay.page];
  const auto later = page.uses.begin() + static_cast<std::ptrdiff_t>(stay.lastUse) + 1;
  if (later == page.uses.end())
    return !captured_.buffers[page.buffer].liveOut;
  next = *later;
  return overwrites(*later, page) &&
         std::all_of(later + 1, page.uses.end(), [&](NodeIndex node) { return order_.completesBefore(*later, node); });
}

PageStays::Nodes PageStays::latest(Nodes::const_iterator begin, Nodes::const_iterator end) const {
  Nodes kept;
  while (end != begin) {
    const NodeIndex node = *--end;
    if (std::none_of(kept.begin(), kept.end(), [&](NodeIndex k) { return order_.completesBefore(node, k); }))
      kept.push_back(node);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

PageStays::Nodes PageStays::earliest(Nodes::const_iterator begin, Nodes::const_iterator end) const {
  Nodes kept;
  for (; begin != end; ++begin)
    if (std::none_of(kept.begin(), kept.end(), [&](NodeIndex k) { return order_.completesBefore(k, *begin); }))
      kept.push_back(*begin);
  return kept;
}

PageStays::Nodes PageStays::firstUses(const Stay &stay) const {
  const Nodes &uses = pages_[stay.page].uses;
  return earliest(uses.begin() + static_cast<std::ptrdiff_t>(stay.firstUse),
                  uses.begin() + static_cast<std::ptrdiff_t>(stay.lastUse) + 1);
}

} // namespace pumpgraph
