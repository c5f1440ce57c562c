// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/search/SplitStep.h"

#include "passes/analysis/Order.h"
#include "pumpgraph/graph/Ranges.h"
#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace pumpgraph {

namespace {

/// Which of a buffer's addresses the node has.
std::size_t addressAt(const std::vector<NodeIndex> &untils, NodeIndex node) {
  return static_cast<std::size_t>(std::upper_bound(untils.begin(), untils.end(), node) - untils.begin());
}

/// The same range, if `bytes` begins at 0; empty if it is outside.
Range within(const Range &range, const Range &bytes) {
  const std::uint64_t begin = std::max(range.offset, bytes.offset), end = std::min(range.end(), bytes.end());
  return begin < end ? Range{begin - bytes.offset, end - begin} : Range{};
}

} // namespace

SplitStep::SplitStep(const Description &step, std::vector<Split> splits) : step_(step), parts_(step) {
  std::sort(splits.begin(), splits.end(), [](const Split &one, const Split &other) {
    return std::pair(one.buffer, one.until) < std::pair(other.buffer, other.until);
  });
  for (auto begin = splits.begin(); begin != splits.end();) {
    const auto end =
        std::find_if(begin, splits.end(), [&](const Split &split) { return split.buffer != begin->buffer; });
    wholes_.emplace(begin->buffer, cut({begin, end}));
    begin = end;
  }
  nameAddresses();
  for (NodeIndex node = 0; node < parts_.nodes.size(); ++node) {
    std::vector<Access> accesses;
    for (const Access &access : step_.nodes[node].accesses)
      for (const Access &part : partsOf(access, node))
        accesses.push_back(part);
    parts_.nodes[node].accesses = std::move(accesses);
  }
}

/// Makes a buffer for each part. The first one takes the place of the whole.
SplitStep::Whole SplitStep::cut(const std::vector<Split> &splits) {
  const BufferIndex index = splits.front().buffer;
  const Buffer &buffer = step_.buffers[index];
  Whole whole;
  std::set<std::uint64_t> cuts{0, buffer.size};
  for (const Split &split : splits) {
    whole.untils.push_back(split.until);
    for (const Range &range : split.moved)
      cuts.insert({range.offset, range.end()});
  }
  for (auto begin = cuts.begin(), end = std::next(begin); end != cuts.end(); begin = end++) {
    Segment segment{{*begin, *end - *begin}, {}};
    Buffer part = buffer;
    part.size = segment.bytes.size;
    part.address = buffer.address == 0 ? 0 : buffer.address + *begin;
    if (*begin == 0) {
      parts_.buffers[index] = part;
      segment.parts.push_back(index);
    } else {
      segment.parts.push_back(static_cast<BufferIndex>(parts_.buffers.size()));
      parts_.buffers.push_back(part);
    }
    for (const Split &split : splits) {
      BufferIndex latest = segment.parts.back();
      if (overlaps(split.moved, segment.bytes)) {
        part.address = 0;
        part.continues = latest;
        latest = static_cast<BufferIndex>(parts_.buffers.size());
        parts_.buffers.push_back(part);
      }
      segment.parts.push_back(latest);
    }
    whole.segments.push_back(std::move(segment));
  }
  return whole;
}

void SplitStep::nameAddresses() {
  origins_.resize(parts_.buffers.size());
  for (BufferIndex index = 0; index < step_.buffers.size(); ++index)
    origins_[index] = {index, index, 0};
  BufferIndex next = static_cast<BufferIndex>(step_.buffers.size());
  for (auto &[index, whole] : wholes_) {
    whole.addresses.push_back(index);
    for (std::size_t i = 0; i < whole.untils.size(); ++i)
      whole.addresses.push_back(next++);
    for (const Segment &segment : whole.segments)
      for (std::size_t address = whole.addresses.size(); address-- > 0;) // the first address of each part counts
        origins_[segment.parts[address]] = {whole.addresses[address], index, segment.bytes.offset};
  }
}

std::vector<Access> SplitStep::partsOf(const Access &access, NodeIndex node) const {
  const auto found = wholes_.find(access.buffer);
  if (found == wholes_.end())
    return {access};
  const Whole &whole = found->second;
  std::vector<Access> parts;
  for (const Segment &segment : whole.segments) {
    Access part = access;
    part.buffer = segment.parts[addressAt(whole.untils, node)];
    part.range = within(access.range, segment.bytes);
    if (part.range.size > 0)
      parts.push_back(part);
  }
  return parts;
}

Description SplitStep::join(const Description &planned) const {
  Description joined = planned;
  joined.buffers.resize(step_.buffers.size());
  for (const auto &[index, whole] : wholes_)
    for (std::size_t address = 0; address < whole.addresses.size(); ++address) {
      Buffer buffer = joinBuffer(whole, address, planned);
      if (address == 0)
        joined.buffers[index] = std::move(buffer);
      else
        joined.buffers.push_back(std::move(buffer));
    }
  std::vector<NodeIndex> captured;
  for (NodeIndex n = 0; n < joined.nodes.size(); ++n) {
    Node &node = joined.nodes[n];
    if (isResidency(node.kind)) {
      const Origin &origin = origins_[node.buffer];
      node.buffer = origin.buffer;
      node.range.offset += origin.offset;
      continue;
    }
    const NodeIndex before = static_cast<NodeIndex>(captured.size());
    captured.push_back(n);
    node.accesses = step_.nodes[before].accesses;
    for (Access &access : node.accesses)
      if (const auto found = wholes_.find(access.buffer); found != wholes_.end())
        access.buffer = found->second.addresses[addressAt(found->second.untils, before)];
  }
  orderAddresses(joined, captured, planned);
  return joined;
}

std::vector<Split> SplitStep::join(std::vector<Split> splits) const {
  for (Split &split : splits) {
    const Origin &origin = origins_[split.buffer];
    split.buffer = origin.captured;
    for (Range &range : split.moved)
      range.offset += origin.offset;
  }
  return splits;
}

Description SplitStep::inParts(const Description &plan) const {
  Description placed = parts_;
  std::vector<bool> isPlaced(parts_.buffers.size(), false);
  const auto place = [&](BufferIndex part, BufferIndex address) {
    if (!isPlaced[part])
      placePart(placed, part, plan.buffers[address]);
    isPlaced[part] = true;
  };
  NodeIndex captured = 0;
  for (const Node &node : plan.nodes) {
    if (isAdded(node.kind))
      continue;
    for (std::size_t i = 0; i < node.accesses.size(); ++i)
      for (const Access &part : partsOf(step_.nodes[captured].accesses[i], captured))
        place(part.buffer, node.accesses[i].buffer);
    ++captured;
  }
  for (BufferIndex part = 0; part < parts_.buffers.size(); ++part) // of which no node uses anything
    place(part, origins_[part].captured);
  return placed;
}

void SplitStep::placePart(Description &placed, BufferIndex part, const Buffer &from) const {
  Buffer &buffer = placed.buffers[part];
  const Range bytes{origins_[part].offset, buffer.size};
  const auto copy = [&](std::vector<Range> &to, const std::vector<Range> &ranges) {
    for (const Range &range : ranges)
      if (const Range inside = within(range, bytes); inside.size > 0)
        append(to, inside);
  };
  copy(buffer.resident, from.resident);
  copy(buffer.mirrored, from.mirrored);
  copy(buffer.hosted, from.hosted);
  if (from.frames.empty())
    return;
  const auto first = from.frames.begin() + static_cast<std::ptrdiff_t>(bytes.offset / step_.pageBytes);
  buffer.frames.assign(first, first + static_cast<std::ptrdiff_t>(placed.pageCount(part)));
}

Buffer SplitStep::joinBuffer(const Whole &whole, std::size_t address, const Description &planned) const {
  Buffer buffer = step_.buffers[whole.addresses.front()];
  if (address > 0) {
    buffer.address = 0;
    buffer.continues = whole.addresses[address - 1];
  }
  for (const Segment &segment : whole.segments) {
    const Buffer &part = planned.buffers[segment.parts[address]];
    buffer.frames.insert(buffer.frames.end(), part.frames.begin(), part.frames.end());
    for (const Range &hosted : part.hosted)
      append(buffer.hosted, {segment.bytes.offset + hosted.offset, hosted.size});
  }
  return buffer;
}

void SplitStep::orderAddresses(Description &joined, const std::vector<NodeIndex> &captured,
                               const Description &planned) const {
  const Order order(joined);
  std::vector<Edge> more;
  const auto completes = [&](NodeIndex first, NodeIndex second) {
    return order.completesBefore(first, second) || std::any_of(more.begin(), more.end(), [&](const Edge &edge) {
             return edge.to == second && (edge.from == first || order.completesBefore(first, edge.from));
           });
  };
  struct User {
    NodeIndex node;
    bool writes;
  };
  std::map<BufferIndex, std::vector<User>> users; // by part
  for (NodeIndex node = 0; node < captured.size(); ++node)
    for (const Access &access : step_.nodes[node].accesses)
      for (const Access &part : wholes_.contains(access.buffer) ? partsOf(access, node) : std::vector<Access>()) {
        std::vector<User> &list = users[part.buffer];
        if (list.empty() || list.back().node != node)
          list.push_back({node, false});
        list.back().writes |= (reliableMay(part) & modeWrite) != 0;
      }
  for (const auto &[index, whole] : wholes_)
    for (const Segment &segment : whole.segments)
      for (const BufferIndex part : std::set<BufferIndex>(segment.parts.begin(), segment.parts.end())) {
        const std::vector<User> &list = users[part];
        const bool isHosted = !planned.buffers[part].hosted.empty();
        for (std::size_t second = 0; second < list.size(); ++second)
          for (std::size_t first = second; first-- > 0;) {
            const auto &[one, oneWrites] = list[first];
            const auto &[other, otherWrites] = list[second];
            if (addressAt(whole.untils, one) != addressAt(whole.untils, other) &&
                (isHosted || oneWrites || otherWrites) && !completes(captured[one], captured[other]))
              more.push_back({captured[one], captured[other], EdgeKind::Full});
          }
      }
  joined.edges.insert(joined.edges.end(), more.begin(), more.end());
  sortEdges(joined.edges);
}

} // namespace pumpgraph
