// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/allocate/SplitEnds.h"

#include "pumpgraph/graph/Ranges.h"

#include <algorithm>

namespace pumpgraph {

SplitEnds::SplitEnds(const Description &step) : step_(step) {
  findHostedUsers();
}

void SplitEnds::findHostedUsers() {
  const std::vector<Buffer> &buffers = step_.buffers;
  for (const Buffer &buffer : buffers) {
    if (buffer.continues == noBuffer)
      continue;
    hasHostedContinuation_ |= !buffer.hosted.empty();
    if (!buffers[buffer.continues].hosted.empty())
      hostedUsers_.try_emplace(buffer.continues);
  }
  for (NodeIndex node = 0; !hostedUsers_.empty() && node < step_.nodes.size(); ++node)
    for (const Access &access : step_.nodes[node].accesses)
      if (const auto users = hostedUsers_.find(access.buffer); users != hostedUsers_.end() &&
                                                               overlaps(buffers[access.buffer].hosted, access.range) &&
                                                               (users->second.empty() || users->second.back() != node))
        users->second.push_back(node);
  std::erase_if(hostedUsers_, [](const auto &users) { return users.second.empty(); });
}

void SplitEnds::note(const Group &group, const PageRun &pages) {
  std::vector<std::uint32_t> &ends = endOfPages_[pages.buffer];
  ends.resize(step_.pageCount(pages.buffer), noEnd);
  std::fill_n(ends.begin() + pages.firstPage, pages.pageCount, static_cast<std::uint32_t>(ends_.size()));
  ends_.push_back(group.barrier);
}

/// The last events of the page at an address before the one that `buffer` is, where it was used last; null if it was
/// not.
const std::vector<DraftNode> *SplitEnds::endBefore(BufferIndex buffer, std::uint64_t page) const {
  const std::vector<Buffer> &buffers = step_.buffers;
  const Range begin{page * step_.pageBytes, 1};
  for (BufferIndex before = buffers[buffer].continues; before != noBuffer; before = buffers[before].continues) {
    if (const auto ends = endOfPages_.find(before); ends != endOfPages_.end() && ends->second[page] != noEnd)
      return &ends_[ends->second[page]];
    if (const auto users = hostedUsers_.find(before);
        users != hostedUsers_.end() && overlaps(buffers[before].hosted, begin))
      return &users->second;
  }
  return nullptr;
}

void SplitEnds::addEndBefore(BufferIndex buffer, std::uint64_t page, Ends &found) const {
  const std::vector<DraftNode> *end = endBefore(buffer, page);
  if (end && std::find(found.begin(), found.end(), end) == found.end())
    found.push_back(end);
}

void SplitEnds::follow(const PageRun &pages, Group &group) const {
  Ends found;
  for (std::uint32_t page = pages.firstPage; page < pages.firstPage + pages.pageCount; ++page)
    addEndBefore(pages.buffer, page, found);
  for (const std::vector<DraftNode> *end : found)
    for (DraftNode node : *end)
      if (std::find(group.barrier.begin(), group.barrier.end(), node) == group.barrier.end())
        group.barrier.push_back(node);
}

void SplitEnds::followHosted(NodeIndex node, const TenureOrder &order, Draft &draft) const {
  if (!hasHostedContinuation_)
    return;
  Ends found;
  for (const Access &access : step_.nodes[node].accesses) {
    const Buffer &buffer = step_.buffers[access.buffer];
    if (buffer.continues == noBuffer)
      continue;
    for (const Range &hosted : buffer.hosted)
      for (std::uint64_t page = std::max(hosted.offset, access.range.offset) / step_.pageBytes;
           page * step_.pageBytes < std::min(hosted.end(), access.range.end()); ++page)
        addEndBefore(access.buffer, page, found);
  }
  for (const std::vector<DraftNode> *end : found)
    for (DraftNode before : *end)
      if (!order.impliedBefore(before, node))
        draft.edges.push_back({before, node});
}

} // namespace pumpgraph
