// SPDX-License-Identifier: Apache-2.0
#include "passes/report/Summary.h"

#include "pumpgraph/graph/Ranges.h"
#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <utility>

namespace pumpgraph {

static Traffic requiredOf(const Compiled &compiled) {
  if (compiled.lowered.stage == Stage::LoweredManaged) // nothing else is known of it
    return {compiled.prediction.upBytes, compiled.prediction.downBytes};
  return requiredTraffic(compiled.lowered);
}

Summary::Summary(Compiled step)
    : Compiled(std::move(step)), required(requiredOf(*this)), hosted(hostedTraffic(lowered)),
      repeatedSweeps(findRepeatedSweeps(lowered)) {
  if (remakeable)
    ways = findWays(*remakeable, lowered);
}

std::uint64_t Summary::continuedBytes() const {
  std::uint64_t bytes = 0;
  for (BufferIndex index = 0; index < lowered.buffers.size(); ++index) {
    const Buffer &buffer = lowered.buffers[index];
    if (buffer.continues == noBuffer)
      continue;
    const Buffer &before = lowered.buffers[buffer.continues];
    for (std::uint64_t page = 0; page < lowered.pageCount(index); ++page) {
      const Range range{page * lowered.pageBytes, std::min(lowered.pageBytes, buffer.size - page * lowered.pageBytes)};
      const bool stays = buffer.frames[page] == before.frames[page] &&
                         overlaps(buffer.hosted, range) == overlaps(before.hosted, range);
      bytes += stays ? 0 : range.size;
    }
  }
  return bytes;
}

Summary::Repeated Summary::repeated() const {
  Repeated all;
  for (const Node &node : lowered.nodes) {
    if (node.kind != NodeKind::Rematerialize)
      continue;
    ++all.nodes;
    all.us += node.costUs;
    for (const Access &access : node.accesses)
      all.bytes += (reliableMay(access) & modeWrite) != 0 ? access.range.size : 0;
  }
  return all;
}

double Summary::hostedUs() const {
  double us = 0;
  for (const Traffic &traffic : hosted.loadByNode)
    us += linkUs(traffic, machine);
  return us;
}

double Summary::movedOverRequired() const {
  const std::uint64_t moved = prediction.upBytes + prediction.downBytes;
  if (moved == required.total())
    return 1;
  return static_cast<double>(moved) / static_cast<double>(required.total());
}

} // namespace pumpgraph
