// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/HostPlaces.h"

#include "pumpgraph/graph/HostedChains.h"

#include <algorithm>
#include <cassert>
#include <tuple>

namespace pumpgraph {

namespace {

/// Runs begin at host-page boundaries, which is what copy engines like.
constexpr std::uint64_t alignmentBytes = 4096;

/// The parts of a live buffer that are neither on the device at the step boundary nor always in host memory.
std::vector<Range> awayAtBoundary(const Buffer &buffer) {
  std::vector<Range> others = buffer.resident;
  others.insert(others.end(), buffer.hosted.begin(), buffer.hosted.end());
  std::sort(others.begin(), others.end(), [](const Range &a, const Range &b) { return a.offset < b.offset; });
  std::vector<Range> away;
  std::uint64_t position = 0;
  for (const Range &other : others) {
    if (other.offset > position)
      away.push_back({position, other.offset - position});
    position = std::max(position, other.end());
  }
  if (position < buffer.size)
    away.push_back({position, buffer.size - position});
  return away;
}

} // namespace

HostPlaces::HostPlaces(const Description &planned) : runs_(planned.buffers.size()) {
  for (BufferIndex b = 0; b < planned.buffers.size(); ++b)
    owner_.push_back(capturedBuffer(planned.buffers, b));
  std::vector<std::vector<Range>> needed(planned.buffers.size());
  const HostedChains hosted(planned.buffers);
  for (const Node &node : planned.nodes) {
    if (!movesUp(node.kind) && !movesDown(node.kind))
      continue;
    for (const Range &part : hosted.alike(node.buffer, node.range))
      if (hosted.at(node.buffer, part.offset) == noBuffer)
        needed[owner_[node.buffer]].push_back(part);
  }
  for (BufferIndex b = 0; b < planned.buffers.size(); ++b) {
    const Buffer &buffer = planned.buffers[b];
    std::vector<Range> &ranges = needed[b];
    if (buffer.isPrivate && (buffer.liveIn || buffer.liveOut)) {
      const std::vector<Range> away = awayAtBoundary(buffer);
      ranges.insert(ranges.end(), away.begin(), away.end());
      ranges.insert(ranges.end(), buffer.mirrored.begin(), buffer.mirrored.end());
    }
    std::sort(ranges.begin(), ranges.end(), [](const Range &a, const Range &b) { return a.offset < b.offset; });
    for (const Range &range : ranges) {
      std::vector<Run> &runs = runs_[b];
      if (!runs.empty() && range.offset <= runs.back().range.end()) {
        Range &last = runs.back().range;
        last.size = std::max(last.end(), range.end()) - last.offset;
        continue;
      }
      runs.push_back({range, 0});
    }
  }
  placeRuns(planned);
}

void HostPlaces::placeRuns(const Description &planned) {
  std::vector<std::vector<NodeIndex>> moves(planned.buffers.size()); // by owner
  for (const bool isDown : {true, false})
    for (NodeIndex n = 0; n < planned.nodes.size(); ++n)
      if (const Node &node = planned.nodes[n]; isDown ? movesDown(node.kind) : movesUp(node.kind))
        moves[owner_[node.buffer]].push_back(n);
  struct Placed {
    std::uint64_t bytes = 0;
    std::size_t rank = 0; ///< of the first that moves some of it: those down come first
    Run *run = nullptr;
  };
  std::vector<Placed> order;
  for (BufferIndex b = 0; b < planned.buffers.size(); ++b)
    for (Run &run : runs_[b]) {
      const auto first = std::find_if(moves[b].begin(), moves[b].end(),
                                      [&](NodeIndex n) { return planned.nodes[n].range.overlaps(run.range); });
      std::size_t rank = 2 * planned.nodes.size();
      if (first != moves[b].end())
        rank = *first + (movesDown(planned.nodes[*first].kind) ? 0 : planned.nodes.size());
      order.push_back({run.range.size, rank, &run});
    }
  std::stable_sort(order.begin(), order.end(), [](const Placed &a, const Placed &b) {
    return std::tuple(a.bytes, a.rank) < std::tuple(b.bytes, b.rank);
  });
  for (const Placed &placed : order) {
    placed.run->place = (bytes_ + alignmentBytes - 1) / alignmentBytes * alignmentBytes;
    bytes_ = placed.run->place + placed.bytes;
  }
}

std::uint64_t HostPlaces::placeOf(BufferIndex buffer, std::uint64_t offset) const {
  for (const Run &run : runs_[owner_[buffer]])
    if (run.range.offset <= offset && offset < run.range.end())
      return run.place + (offset - run.range.offset);
  assert(false && "the page has no place in host memory");
  return 0;
}

} // namespace pumpgraph
