// SPDX-License-Identifier: Apache-2.0
#include "test/unit/check/SharedSteps.h"

#include "test/unit/check/Random.h"
#include "test/unit/check/RandomGraph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace pumpgraph::test {

namespace {

bool hasValue(const Buffer &buffer) {
  return buffer.liveIn || buffer.liveOut;
}

} // namespace

StepPair randomPair(std::uint64_t seed) {
  Random random(mix(seed, 2));
  StepPair pair;
  pair.first = randomStep(seed);
  for (Buffer &buffer : pair.first.buffers)
    buffer.liveIn = buffer.liveOut = hasValue(buffer) || !buffer.isPrivate;
  pair.second = pair.first;
  for (const Buffer &buffer : pair.first.buffers)
    pair.isNew.push_back(hasValue(buffer) && random.chance(20));
  for (Buffer &buffer : pair.second.buffers)
    if (!hasValue(buffer))
      buffer.name += " again";
  const unsigned dropped = static_cast<unsigned>(random.below(50));
  for (Node &node : pair.first.nodes)
    std::erase_if(node.accesses,
                  [&](const Access &access) { return pair.isNew[access.buffer] || random.chance(dropped); });
  for (Node &node : pair.second.nodes)
    std::erase_if(node.accesses, [&](const Access &) { return random.chance(dropped); });
  for (BufferIndex b = 0; b < pair.isNew.size(); ++b)
    if (pair.isNew[b]) { // nothing to the first step
      Buffer &buffer = pair.first.buffers[b];
      buffer.isPrivate = true;
      buffer.liveIn = buffer.liveOut = false;
    }
  return pair;
}

Description boundaryAfter(const StepPair &pair, const Description &firstPlan) {
  Description boundary;
  boundary.pageBytes = firstPlan.pageBytes;
  std::int32_t last = noFrame;
  for (const Buffer &buffer : firstPlan.buffers)
    for (const std::int32_t frame : buffer.frames)
      last = std::max(last, frame);
  boundary.budgetBytes = static_cast<std::uint64_t>(last + 1) * boundary.pageBytes;
  for (BufferIndex b = 0; b < pair.second.buffers.size(); ++b) {
    const bool isGiven = hasValue(pair.second.buffers[b]) && !pair.isNew[b];
    boundary.buffers.push_back(isGiven ? firstPlan.buffers[b] : pair.second.buffers[b]);
  }
  return boundary;
}

ApartPages usedTogether(const StepPair &pair) {
  ApartPages apart;
  for (const Node &node : pair.second.nodes) {
    std::vector<BufferPart> &group = apart.emplace_back();
    for (const Access &access : node.accesses)
      if (const Buffer &buffer = pair.second.buffers[access.buffer];
          buffer.isPrivate && hasValue(buffer) && !pair.isNew[access.buffer])
        group.push_back({access.buffer, access.range});
  }
  return apart;
}

std::optional<std::string> notApart(const Description &planned, const ApartPages &apart) {
  for (const std::vector<BufferPart> &group : apart) {
    std::map<std::int32_t, std::pair<BufferIndex, std::uint64_t>> pages;
    for (const BufferPart &part : group)
      for (std::uint64_t page = part.range.offset / planned.pageBytes; page * planned.pageBytes < part.range.end();
           ++page) {
        const Buffer &buffer = planned.buffers[part.buffer];
        const std::int32_t frame = buffer.frames.empty() ? noFrame : buffer.frames[page];
        const auto [other, isFirst] = pages.try_emplace(frame, part.buffer, page);
        if (frame != noFrame && !isFirst && other->second != std::pair(part.buffer, page))
          return fmt::format("frame {} is that of page {} of \"{}\" and of page {} of \"{}\"", frame, page, buffer.name,
                             other->second.second, planned.buffers[other->second.first].name);
      }
  }
  return std::nullopt;
}

Description inTurns(const std::vector<const Description *> &steps, const Description &first,
                    const std::vector<bool> &isNew) {
  Description whole;
  whole.stage = Stage::Planned;
  whole.pageBytes = first.pageBytes;
  whole.budgetBytes = first.budgetBytes;
  whole.buffers = first.buffers;
  for (const Description *step : steps)
    for (BufferIndex b = 0; step != &first && b < whole.buffers.size(); ++b) {
      if (isNew[b])
        whole.buffers[b] = step->buffers[b];
      // A page may have its frame from either.
      std::vector<std::int32_t> &frames = whole.buffers[b].frames;
      for (std::size_t page = 0; hasValue(whole.buffers[b]) && page < frames.size(); ++page)
        if (frames[page] == noFrame)
          frames[page] = step->buffers[b].frames[page];
    }
  std::int32_t captured = 0;
  for (const Description *step : steps) {
    whole.budgetBytes = std::max(whole.budgetBytes, step->budgetBytes);
    // What has no value between replays is other memory in each.
    std::vector<BufferIndex> place(step->buffers.size());
    for (BufferIndex b = 0; b < place.size(); ++b) {
      place[b] = b;
      if (hasValue(step->buffers[b]))
        continue;
      place[b] = static_cast<BufferIndex>(whole.buffers.size());
      whole.buffers.push_back(step->buffers[b]);
    }
    const auto begin = static_cast<NodeIndex>(whole.nodes.size());
    std::int32_t mostCaptured = -1;
    for (Node node : step->nodes) {
      if (node.captured != notCaptured) {
        mostCaptured = std::max(mostCaptured, node.captured);
        node.captured += captured;
      }
      node.buffer = isAdded(node.kind) ? place[node.buffer] : 0;
      for (Access &access : node.accesses)
        access.buffer = place[access.buffer];
      whole.nodes.push_back(std::move(node));
    }
    captured += mostCaptured + 1;
    for (const Edge &edge : step->edges)
      whole.edges.push_back({begin + edge.from, begin + edge.to, edge.kind});
    const auto end = static_cast<NodeIndex>(whole.nodes.size());
    for (NodeIndex node = begin; begin > 0 && node < end; ++node)
      whole.edges.push_back({begin - 1, node});
    Node barrier;
    barrier.kind = NodeKind::Empty;
    barrier.captured = captured++;
    whole.nodes.push_back(barrier);
    for (NodeIndex node = begin; node < end; ++node)
      whole.edges.push_back({node, end});
  }
  return whole;
}

} // namespace pumpgraph::test
