// SPDX-License-Identifier: Apache-2.0
#include "pumpgraph/graph/CopyRows.h"

#include "pumpgraph/graph/Ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace pumpgraph {

namespace {

/// The largest distance between rows that the driver takes (CU_DEVICE_ATTRIBUTE_MAX_PITCH).
constexpr std::uint64_t mostDistance = (std::uint64_t{1} << 31) - 1;

} // namespace

JoinedCopies::JoinedCopies(const Description &lowered)
    : lowered_(lowered), hosted_(lowered.buffers), before_(lowered.nodes.size()), after_(lowered.nodes.size()) {
  for (const Edge &edge : lowered.edges) {
    if (edge.from >= lowered.nodes.size() || edge.to >= lowered.nodes.size())
      continue;
    for (const auto &[own, other] : {std::pair(&before_[edge.to], edge.from), std::pair(&after_[edge.from], edge.to)}) {
      own->node = other;
      ++own->count;
      own->allFull = own->allFull && edge.kind == EdgeKind::Full;
    }
  }
  CopyRows lanes[2];
  const auto end = [&](CopyRows &rows) {
    if (!rows.empty() && lowered.nodes[rows.back()].joined)
      all_.push_back(rows);
    rows.clear();
  };
  for (NodeIndex n = 0; n < lowered.nodes.size(); ++n) {
    const Node &node = lowered.nodes[n];
    if (!isCopy(node.kind))
      continue;
    CopyRows &lane = lanes[movesUp(node.kind)];
    if (!node.joined)
      end(lane);
    lane.push_back(n);
  }
  end(lanes[0]);
  end(lanes[1]);
  std::sort(all_.begin(), all_.end());
}

std::string JoinedCopies::faultOfEdges(const CopyRows &rows) const {
  for (std::size_t row = 1; row < rows.size(); ++row) {
    const Neighbours &before = before_[rows[row]], &after = after_[rows[row - 1]];
    if (before.count != 1 || before.node != rows[row - 1] || !before.allFull)
      return fmt::format("node {} waits for others than node {}, whose row it follows", rows[row], rows[row - 1]);
    if (after.count != 1 || after.node != rows[row])
      return fmt::format("others than node {} wait for node {}, which is not the last row", rows[row], rows[row - 1]);
  }
  return {};
}

std::string JoinedCopies::faultOf(const CopyRows &rows) const {
  if (rows.size() < 2)
    return fmt::format("node {} has none before it", rows.front());
  if (rows.size() > mostRows)
    return fmt::format("{} rows are more than {}", rows.size(), mostRows);
  const Node &first = lowered_.nodes[rows.front()];
  std::set<std::int32_t> frames;
  for (const NodeIndex row : rows) {
    const Node &node = lowered_.nodes[row];
    const Buffer &buffer = lowered_.buffers[node.buffer];
    if (node.range.size != first.range.size)
      return fmt::format("node {} has {} bytes, node {} {}", row, node.range.size, rows.front(), first.range.size);
    if (hosted_.at(node.buffer, node.range.offset) != noBuffer)
      return fmt::format("node {} moves what is hosted at another address", row);
    for (const std::uint64_t page : pagesIn(node.range, lowered_.pageBytes))
      if (page >= buffer.frames.size() || !frames.insert(buffer.frames[page]).second)
        return fmt::format("page {} of \"{}\" has no frame of its own among them", page, buffer.name);
  }
  if (std::string fault = faultOfEdges(rows); !fault.empty())
    return fault;
  const CopyRows ascending = inHostOrder(rows);
  const std::uint64_t distance = hostDistance(rows);
  for (std::size_t row = 1; row < rows.size(); ++row) {
    const std::uint64_t here = lowered_.nodes[ascending[row]].hostOffset;
    const std::uint64_t before = lowered_.nodes[ascending[row - 1]].hostOffset;
    if (here - before != distance || distance < first.range.size || distance > mostDistance)
      return fmt::format(
          "in the pinned pool node {} is {} bytes behind node {}, for rows of {}, of which the first two "
          "are {} apart",
          ascending[row], here - before, ascending[row - 1], first.range.size, distance);
  }
  return {};
}

CopyRows JoinedCopies::inHostOrder(CopyRows rows) const {
  std::stable_sort(rows.begin(), rows.end(), [&](NodeIndex a, NodeIndex b) {
    return lowered_.nodes[a].hostOffset < lowered_.nodes[b].hostOffset;
  });
  return rows;
}

std::uint64_t JoinedCopies::hostDistance(const CopyRows &rows) const {
  const CopyRows ascending = inHostOrder(rows);
  return lowered_.nodes[ascending[1]].hostOffset - lowered_.nodes[ascending[0]].hostOffset;
}

void keepPossibleRows(Description &lowered) {
  std::vector<NodeIndex> firsts; // of what is left
  {
    const JoinedCopies joined(lowered);
    for (const CopyRows &rows : joined.all()) {
      CopyRows kept;
      for (const NodeIndex row : rows) {
        kept.push_back(row);
        if (kept.size() > 1 && joined.faultOf(kept).empty())
          continue;
        firsts.push_back(row);
        kept = {row};
      }
    }
  }
  for (const NodeIndex node : firsts)
    lowered.nodes[node].joined = false;
}

} // namespace pumpgraph
