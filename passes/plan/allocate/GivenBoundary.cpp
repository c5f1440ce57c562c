// SPDX-License-Identifier: Apache-2.0
#include "passes/plan/allocate/GivenBoundary.h"

#include "passes/analysis/Indices.h"
#include "pumpgraph/graph/Ranges.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

namespace pumpgraph {

namespace {

/// Two pages of one frame cannot be used by one node, and a copy cannot have an operand in host memory.
std::string faultOf(const Description &step, const Node &node) {
  const bool mayCopy = node.kind == NodeKind::Memcpy || node.kind == NodeKind::ChildGraph;
  std::map<std::int32_t, std::pair<BufferIndex, std::uint64_t>> pages;
  for (const Access &access : node.accesses) {
    const Buffer &buffer = step.buffers[access.buffer];
    if (access.range.size == 0)
      continue;
    if (mayCopy && overlaps(buffer.hosted, access.range))
      return fmt::format("copies \"{}\", some of which other steps keep in host memory at all times", buffer.name);
    for (const std::uint64_t page : pagesIn(access.range, step.pageBytes)) {
      const std::int32_t frame = buffer.frames.empty() ? noFrame : buffer.frames[page];
      const std::pair place(access.buffer, page);
      if (frame != noFrame && pages.try_emplace(frame, place).first->second != place)
        return fmt::format("uses pages of \"{}\" and \"{}\" to which other steps have given one frame",
                           step.buffers[pages[frame].first].name, buffer.name);
    }
  }
  return {};
}

} // namespace

std::string takeBoundary(Description &step, const Description &boundary, std::optional<NodeIndex> &node) {
  if (boundary.buffers.size() != step.buffers.size() || boundary.pageBytes != step.pageBytes)
    return fmt::format("the boundary has {} buffers in pages of {} bytes, the step {} in pages of {}",
                       boundary.buffers.size(), boundary.pageBytes, step.buffers.size(), step.pageBytes);
  for (BufferIndex b = 0; b < step.buffers.size(); ++b) {
    const Buffer &given = boundary.buffers[b];
    Buffer &buffer = step.buffers[b];
    if (given.frames.empty())
      continue;
    if (given.size != buffer.size || given.isPrivate != buffer.isPrivate)
      return fmt::format("buffer {} \"{}\" is another one in the boundary", b, buffer.name);
    for (const std::int32_t frame : given.frames)
      if (frame != noFrame ? static_cast<std::uint64_t>(frame) >= othersFrames(&boundary) : !given.isPrivate)
        return fmt::format("buffer {} \"{}\" has frame {} in a boundary of {}", b, buffer.name, frame,
                           othersFrames(&boundary));
    if (buffer.isPresent && (!covers(given.resident, {0, given.size}) || !given.mirrored.empty()))
      return fmt::format(
          "\"{}\" has to be on the device between replays, and other steps keep some of it in host memory",
          buffer.name);
    buffer.frames = given.frames;
    buffer.resident = given.resident;
    buffer.mirrored = given.mirrored;
    buffer.hosted = given.hosted;
  }
  for (NodeIndex n = 0; n < step.nodes.size(); ++n)
    if (const std::string fault = faultOf(step, step.nodes[n]); !fault.empty()) {
      node = n;
      return fmt::format("node {} \"{}\" {}", n, step.nodes[n].name, fault);
    }
  return {};
}

std::uint64_t othersFrames(const Description *boundary) {
  return boundary ? boundary->budgetBytes / boundary->pageBytes : 0;
}

GivenBoundary givenBoundary(const Description &step, const Timeline &timeline, const Description *boundary,
                            std::uint64_t frameCount) {
  const std::size_t count = timeline.pieces().size();
  GivenBoundary given;
  given.isGiven = IndexedVector<PieceIndex, bool>(count, false);
  given.states = BoundaryStates(count, BoundaryState::Away);
  given.homes = PieceFrames(count);
  given.isShared = boundary != nullptr;

  std::vector<bool> taken(frameCount, false);
  auto own = static_cast<std::int32_t>(othersFrames(boundary)); // the next frame for an exclusive page
  std::uint64_t givenExclusive = 0;
  for (const Buffer &buffer : step.buffers) {
    if (buffer.isPrivate)
      continue;
    const std::uint64_t pages = (buffer.size + step.pageBytes - 1) / step.pageBytes;
    for (std::uint64_t page = 0; page < pages; ++page) {
      const std::int32_t frame = buffer.frames.empty() ? own++ : buffer.frames[page];
      givenExclusive += buffer.frames.empty() ? 0 : 1;
      taken[static_cast<std::size_t>(frame)] = true;
      given.numbers.push_back(frame);
    }
  }
  given.ownFrom = static_cast<std::uint32_t>(given.numbers.size() + othersFrames(boundary) - givenExclusive);
  for (std::size_t frame = 0; frame < frameCount; ++frame)
    if (!taken[frame])
      given.numbers.push_back(static_cast<std::int32_t>(frame));

  std::vector<std::int32_t> inner(frameCount);
  for (std::size_t i = 0; i < frameCount; ++i)
    inner[static_cast<std::size_t>(given.numbers[i])] = static_cast<std::int32_t>(i);
  for (const PieceIndex index : indicesOf(timeline.pieces())) {
    const Piece &piece = timeline.piece(index);
    const Buffer &buffer = step.buffers[piece.buffer];
    if (buffer.isPresent) {
      given.isGiven[index] = true;
      given.states[index] = BoundaryState::Resident;
    }
    if (buffer.frames.empty())
      continue;
    const Range first{piece.firstPage * step.pageBytes, 1};
    given.isGiven[index] = true;
    given.states[index] = covers(buffer.mirrored, first)   ? BoundaryState::Mirrored
                          : covers(buffer.resident, first) ? BoundaryState::Resident
                                                           : BoundaryState::Away;
    for (std::uint32_t page = 0; page < piece.pageCount && buffer.frames[piece.firstPage] != noFrame; ++page)
      given.homes[index].push_back(inner[static_cast<std::size_t>(buffer.frames[piece.firstPage + page])]);
  }
  return given;
}

} // namespace pumpgraph
