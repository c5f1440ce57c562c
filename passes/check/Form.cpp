// SPDX-License-Identifier: Apache-2.0
#include "passes/check/Form.h"

#include "pumpgraph/graph/CopyRows.h"
#include "pumpgraph/graph/HostedChains.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace pumpgraph::check {

namespace {

constexpr std::uint64_t mostPages = std::uint64_t{1} << 26; ///< 128 TiB of 2 MiB pages

bool isTransferOrDiscard(NodeKind kind) {
  return movesDown(kind) || movesUp(kind) || kind == NodeKind::Discard;
}

bool insideBuffer(const Buffer &buffer, Range range) {
  return range.offset <= buffer.size && range.size <= buffer.size - range.offset;
}

bool coversWholePages(const Description &description, const Buffer &buffer, Range range) {
  return range.size > 0 && insideBuffer(buffer, range) && range.offset % description.pageBytes == 0 &&
         (range.end() % description.pageBytes == 0 || range.end() == buffer.size);
}

/// What is wrong with the ranges in one `state`; empty: nothing.
std::string rangesFault(const Description &description, const Buffer &buffer, const char *state,
                        const std::vector<Range> &ranges) {
  std::uint64_t end = 0;
  for (const Range &range : ranges) {
    if (!coversWholePages(description, buffer, range) || range.offset < end)
      return fmt::format("the {} {} of \"{}\" are not whole pages inside its {} bytes, ascending and disjoint", state,
                         rangeLabel(range), buffer.name, buffer.size);
    end = range.end();
  }
  return {};
}

/// What only mirrored ranges can have wrong.
std::string mirroredFault(const Buffer &buffer) {
  for (const Range &range : buffer.mirrored) {
    if (!buffer.isPrivate || !buffer.liveOut)
      return fmt::format("{} of \"{}\" are mirrored at the step boundary, but the buffer is not {}", rangeLabel(range),
                         buffer.name, buffer.isPrivate ? "live-out" : "private");
    if (!covers(buffer.resident, range))
      return fmt::format("{} of \"{}\" are mirrored at the step boundary, but not all are resident then",
                         rangeLabel(range), buffer.name);
  }
  return {};
}

/// What a present buffer cannot be in a plan: rule 4.
std::string presentFault(const Buffer &buffer) {
  if (!buffer.isPresent)
    return {};
  if (!buffer.isPrivate || !buffer.liveOut)
    return fmt::format("\"{}\" is present at the step boundary, but not {}", buffer.name,
                       buffer.isPrivate ? "live-out" : "private");
  if (!buffer.mirrored.empty())
    return fmt::format("{} of \"{}\" are mirrored at the step boundary, but the buffer is present: others may write it",
                       rangeLabel(buffer.mirrored.front()), buffer.name);
  if (!covers(buffer.resident, {0, buffer.size}))
    return fmt::format("\"{}\" is present, but not all of it is resident at the step boundary", buffer.name);
  return {};
}

/// What only hosted ranges can have wrong: rule 8, but for transfers.
std::string hostedFault(const Description &description, const Buffer &buffer) {
  for (const Range &range : buffer.hosted) {
    if (!buffer.isPrivate)
      return fmt::format("{} of \"{}\" are hosted, but the buffer is not private", rangeLabel(range), buffer.name);
    if (overlaps(buffer.resident, range))
      return fmt::format("{} of \"{}\" are hosted, but some are resident at the step boundary", rangeLabel(range),
                         buffer.name);
    for (std::uint64_t page = range.offset / description.pageBytes; page * description.pageBytes < range.end(); ++page)
      if (!buffer.frames.empty() && buffer.frames[page] != noFrame)
        return fmt::format("page {} of \"{}\" is hosted, but has frame {}", page, buffer.name, buffer.frames[page]);
  }
  return {};
}

void checkBufferForm(const Description &description, BufferIndex index, Report &report) {
  const Buffer &buffer = description.buffers[index];
  const auto fail = [&](const char *rule, std::string message) {
    report.add({.rule = rule, .buffer = index}, std::move(message));
  };
  if (buffer.size == 0)
    return fail("size", fmt::format("buffer \"{}\" has no bytes", buffer.name));
  const std::uint64_t pages = description.pageCount(index);
  if (!buffer.frames.empty() && buffer.frames.size() != pages)
    return fail("frames", fmt::format("buffer \"{}\" has {} pages but names {} frames", buffer.name, pages,
                                      buffer.frames.size()));
  for (std::size_t page = 0; page < buffer.frames.size(); ++page)
    if (buffer.frames[page] < noFrame)
      fail("frame", fmt::format("{} names frame {}", pageLabel(description, index, page), buffer.frames[page]));
  if (std::string fault = rangesFault(description, buffer, "resident", buffer.resident); !fault.empty())
    return fail("resident", std::move(fault));
  if (std::string fault = rangesFault(description, buffer, "mirrored", buffer.mirrored); !fault.empty())
    return fail("mirrored", std::move(fault));
  if (std::string fault = mirroredFault(buffer); !fault.empty())
    return fail("mirrored", std::move(fault));
  if (std::string fault = presentFault(buffer); !fault.empty())
    return fail("present", std::move(fault));
  if (std::string fault = rangesFault(description, buffer, "hosted", buffer.hosted); !fault.empty())
    return fail("hosted", std::move(fault));
  if (std::string fault = hostedFault(description, buffer); !fault.empty())
    fail("hosted", std::move(fault));
}

/// Rule 9, but for order and values.
void checkContinuationForm(const Description &description, BufferIndex index, Report &report) {
  const Buffer &buffer = description.buffers[index];
  if (buffer.continues == noBuffer)
    return;
  const auto fail = [&](std::string message) {
    report.add({.rule = "continuation", .buffer = index, .otherBuffer = buffer.continues}, std::move(message));
  };
  if (buffer.continues >= index)
    return fail(fmt::format("buffer {} \"{}\" continues buffer {}, which does not come before it", index, buffer.name,
                            buffer.continues));
  const Buffer &before = description.buffers[buffer.continues];
  if (before.size != buffer.size)
    fail(fmt::format("\"{}\" of {} bytes continues one of {} bytes", buffer.name, buffer.size, before.size));
  for (BufferIndex other = 0; other < index; ++other)
    if (description.buffers[other].continues == buffer.continues)
      fail(fmt::format("buffers {} and {} both continue \"{}\"", other, index, before.name));
  for (const Buffer *part : {&before, &buffer})
    if (!part->isPrivate || part->liveIn || part->liveOut || !part->resident.empty())
      fail(fmt::format("\"{}\" goes on at another address, but is {}", part->name,
                       !part->isPrivate                ? "not private"
                       : part->liveIn || part->liveOut ? "live at the step boundary"
                                                       : "resident at the step boundary"));
}

/// A node has one address of a buffer.
void checkNodeNames(const Description &description, NodeIndex index, Report &report) {
  const std::vector<Access> &accesses = description.nodes[index].accesses;
  std::map<BufferIndex, BufferIndex> names;
  for (const Access &access : accesses) {
    const auto [name, isFirst] = names.emplace(capturedBuffer(description.buffers, access.buffer), access.buffer);
    if (!isFirst && name->second != access.buffer)
      return report.add({.rule = "continuation", .node = index, .buffer = access.buffer, .otherBuffer = name->second},
                        fmt::format("{} touches \"{}\" at two addresses", nodeLabel(description, index),
                                    description.buffers[access.buffer].name));
  }
}

void checkAccessForm(const Description &description, NodeIndex index, Report &report) {
  for (const Access &access : description.nodes[index].accesses) {
    if (access.buffer >= description.buffers.size())
      return report.add({.rule = "access", .node = index},
                        fmt::format("{} accesses buffer {} of {}", nodeLabel(description, index), access.buffer,
                                    description.buffers.size()));
    const Buffer &buffer = description.buffers[access.buffer];
    const Place place{.rule = "access", .node = index, .buffer = access.buffer};
    if (!insideBuffer(buffer, access.range))
      report.add(place, fmt::format("{} accesses {} bytes from {} of \"{}\", which has {} bytes",
                                    nodeLabel(description, index), access.range.size, access.range.offset, buffer.name,
                                    buffer.size));
    if (access.may > modeReadWrite || (access.must & ~access.may) != 0)
      report.add(place, fmt::format("{} must access \"{}\" in mode {} but may only in mode {}",
                                    nodeLabel(description, index), buffer.name, access.must, access.may));
  }
}

void checkTransferForm(const Description &description, NodeIndex index, Report &report) {
  const Node &node = description.nodes[index];
  if (!isTransferOrDiscard(node.kind))
    return;
  if (node.buffer >= description.buffers.size())
    return report.add({.rule = "transfer", .node = index},
                      fmt::format("node {} moves buffer {} of {}", index, node.buffer, description.buffers.size()));
  const Buffer &buffer = description.buffers[node.buffer];
  const Place place{.rule = "transfer", .node = index, .buffer = node.buffer};
  if (!coversWholePages(description, buffer, node.range))
    return report.add(place,
                      fmt::format("{} does not cover whole pages of {} bytes inside the {} bytes of \"{}\"",
                                  nodeLabel(description, index), description.pageBytes, buffer.size, buffer.name));
  if (!buffer.isPrivate)
    report.add(place, fmt::format("{}: an exclusive buffer may not be moved", nodeLabel(description, index)));
  if (overlaps(buffer.hosted, node.range))
    report.add(place, fmt::format("{}: some of it is hosted, and a hosted page has nowhere to be moved",
                                  nodeLabel(description, index)));
}

void checkEdgeForm(const Description &description, Report &report) {
  for (const Edge &edge : description.edges)
    if (edge.from >= edge.to || edge.to >= description.nodes.size())
      report.add({.rule = "edge", .node = edge.from, .otherNode = edge.to},
                 fmt::format("the edge from node {} to node {} is not in the order of the {} nodes", edge.from, edge.to,
                             description.nodes.size()));
}

struct NamedFrame {
  std::int32_t frame = noFrame;
  BufferIndex buffer = 0;
  std::uint64_t page = 0;
};

/// Every (frame, page) pair, pages of one frame next to each other.
std::vector<NamedFrame> framesInOrder(const Description &description) {
  std::vector<NamedFrame> named;
  for (BufferIndex buffer = 0; buffer < description.buffers.size(); ++buffer) {
    const std::vector<std::int32_t> &frames = description.buffers[buffer].frames;
    for (std::uint64_t page = 0; page < frames.size(); ++page)
      if (frames[page] != noFrame)
        named.push_back({frames[page], buffer, page});
  }
  std::stable_sort(named.begin(), named.end(),
                   [](const NamedFrame &left, const NamedFrame &right) { return left.frame < right.frame; });
  return named;
}

/// Rule 6, the part about touched pages. Exclusive pages have frames, touched or not: rule 5.
void requireFrames(const Description &description, NodeIndex node, BufferIndex buffer, Range range, Report &report) {
  if (range.size == 0 || !description.buffers[buffer].isPrivate)
    return;
  const std::vector<std::int32_t> &frames = description.buffers[buffer].frames;
  const std::uint64_t lastPage = (range.end() - 1) / description.pageBytes;
  for (std::uint64_t page = range.offset / description.pageBytes; page <= lastPage; ++page)
    if ((frames.empty() || frames[page] == noFrame) &&
        !overlaps(description.buffers[buffer].hosted, pageRange(description, buffer, page)))
      return report.add({.rule = "touched", .node = node, .buffer = buffer},
                        fmt::format("{} touches {}, which has no frame", nodeLabel(description, node),
                                    pageLabel(description, buffer, page)));
}

} // namespace

void checkStage(const Description &description, std::initializer_list<Stage> stages, Report &report) {
  if (std::string fault = wrongStage(description, stages); !fault.empty())
    report.add({.rule = "stage"}, std::move(fault));
}

void checkForm(const Description &description, Report &report) {
  if (description.pageBytes == 0)
    return report.add({.rule = "page"}, "a page has 0 bytes");
  std::uint64_t pages = 0;
  for (BufferIndex buffer = 0; buffer < description.buffers.size(); ++buffer) {
    pages += std::min(mostPages, description.buffers[buffer].size / description.pageBytes);
    if (pages >= mostPages)
      return report.add({.rule = "pages", .buffer = buffer},
                        fmt::format("there are {} pages or more up to buffer \"{}\": too many to look at each",
                                    mostPages, description.buffers[buffer].name));
    checkBufferForm(description, buffer, report);
    checkContinuationForm(description, buffer, report);
  }
  for (NodeIndex node = 0; node < description.nodes.size(); ++node) {
    checkAccessForm(description, node, report);
    checkTransferForm(description, node, report);
  }
  for (NodeIndex node = 0; report.empty() && node < description.nodes.size(); ++node)
    checkNodeNames(description, node, report);
  checkEdgeForm(description, report);
}

void checkBoundaryState(const Description &description, Report &report) {
  struct Page {
    BufferIndex buffer = 0;
    std::uint64_t page = 0;
  };
  std::unordered_map<std::int32_t, Page> residents;
  for (BufferIndex index = 0; index < description.buffers.size(); ++index) {
    const Buffer &buffer = description.buffers[index];
    if (!buffer.isPrivate)
      continue;
    if (buffer.liveIn && !buffer.liveOut)
      report.add({.rule = "live", .buffer = index},
                 fmt::format("private buffer \"{}\" is live-in but not live-out: its value would be lost for the next "
                             "replay",
                             buffer.name));
    for (const Range &range : buffer.resident)
      for (std::uint64_t page = range.offset / description.pageBytes; page * description.pageBytes < range.end();
           ++page) {
        if (buffer.frames.empty() || buffer.frames[page] == noFrame) {
          report.add(
              {.rule = "resident without frame", .buffer = index},
              fmt::format("{} is resident at the step boundary but has no frame", pageLabel(description, index, page)));
          continue;
        }
        const auto [other, isFirst] = residents.try_emplace(buffer.frames[page], Page{index, page});
        if (!isFirst)
          report.add({.rule = "two residents", .buffer = index, .otherBuffer = other->second.buffer},
                     fmt::format("{} and {} are both resident at the step boundary in frame {}",
                                 pageLabel(description, other->second.buffer, other->second.page),
                                 pageLabel(description, index, page), buffer.frames[page]));
      }
  }
}

void checkExclusiveBuffers(const Description &description, Report &report) {
  for (BufferIndex index = 0; index < description.buffers.size(); ++index) {
    const Buffer &buffer = description.buffers[index];
    if (buffer.isPrivate)
      continue;
    const auto missing = std::find(buffer.frames.begin(), buffer.frames.end(), noFrame);
    const auto page = static_cast<std::uint64_t>(missing - buffer.frames.begin());
    if (page < description.pageCount(index))
      report.add({.rule = "exclusive without frame", .buffer = index},
                 fmt::format("{} has no frame, but the buffer is exclusive", pageLabel(description, index, page)));
  }
  const std::vector<NamedFrame> named = framesInOrder(description);
  for (std::size_t i = 1; i < named.size(); ++i) {
    const NamedFrame &left = named[i - 1];
    const NamedFrame &right = named[i];
    const bool bothPrivate = description.buffers[left.buffer].isPrivate && description.buffers[right.buffer].isPrivate;
    if (left.frame != right.frame || bothPrivate)
      continue;
    report.add(
        {.rule = "exclusive shared", .buffer = left.buffer, .otherBuffer = right.buffer},
        fmt::format("{} and {} share frame {}, but \"{}\" is exclusive", pageLabel(description, left.buffer, left.page),
                    pageLabel(description, right.buffer, right.page), left.frame,
                    description.buffers[description.buffers[left.buffer].isPrivate ? right.buffer : left.buffer].name));
  }
}

void checkBudget(const Description &description, Report &report) {
  std::uint64_t frames = 0;
  std::int32_t last = noFrame;
  for (const NamedFrame &named : framesInOrder(description)) {
    frames += named.frame != last;
    last = named.frame;
  }
  const std::uint64_t allowed = description.budgetBytes / description.pageBytes;
  if (frames > allowed)
    report.add({.rule = "budget"}, fmt::format("{} frames of {} bytes are in use, but the budget of {} bytes holds {}",
                                               frames, description.pageBytes, description.budgetBytes, allowed));

  for (NodeIndex index = 0; index < description.nodes.size(); ++index) {
    const Node &node = description.nodes[index];
    for (const Access &access : node.accesses)
      requireFrames(description, index, access.buffer, access.range, report);
    if (isTransferOrDiscard(node.kind))
      requireFrames(description, index, node.buffer, node.range, report);
  }
}

namespace {

/// Where a page is kept in the pinned pool, and by whose word.
struct HostPlace {
  std::uint64_t begin = 0;
  BufferIndex buffer = 0;
  std::uint64_t page = 0;
  NodeIndex node = 0;
};

/// Of every page that a lowered copy moves, one entry; pages that have two places are reported. What goes on at another
/// address has the same place there.
std::vector<HostPlace> hostPlaces(const Description &description, Report &report) {
  std::vector<HostPlace> places;
  const HostedChains hosted(description.buffers);
  for (NodeIndex index = 0; index < description.nodes.size(); ++index) {
    const Node &node = description.nodes[index];
    if (!isCopy(node.kind))
      continue;
    if (hosted.alike(node.buffer, node.range).size() > 1) {
      report.add({.rule = "pool", .node = index, .buffer = node.buffer},
                 fmt::format("{} moves pages of which some are hosted at another address and others not, or elsewhere",
                             nodeLabel(description, index)));
      continue;
    }
    if (const BufferIndex host = hosted.at(node.buffer, node.range.offset); host != noBuffer) {
      if (node.hostOffset != 0)
        report.add({.rule = "pool", .node = index, .buffer = node.buffer, .otherBuffer = host},
                   fmt::format("{} uses the pinned pool from {} on, but the pages are hosted at another address",
                               nodeLabel(description, index), node.hostOffset));
      continue;
    }
    if (node.hostOffset > description.hostBytes || node.range.size > description.hostBytes - node.hostOffset) {
      report.add({.rule = "pool", .node = index},
                 fmt::format("{} uses {} bytes from {} of the pinned pool, which has {} bytes",
                             nodeLabel(description, index), node.range.size, node.hostOffset, description.hostBytes));
      continue;
    }
    const std::uint64_t firstPage = node.range.offset / description.pageBytes;
    for (std::uint64_t page = firstPage; page * description.pageBytes < node.range.end(); ++page)
      places.push_back({node.hostOffset + (page - firstPage) * description.pageBytes,
                        capturedBuffer(description.buffers, node.buffer), page, index});
  }

  std::stable_sort(places.begin(), places.end(), [](const HostPlace &left, const HostPlace &right) {
    return std::tuple(left.buffer, left.page) < std::tuple(right.buffer, right.page);
  });
  const auto samePage = [&](const HostPlace &first, const HostPlace &other) {
    if (first.buffer != other.buffer || first.page != other.page)
      return false;
    if (first.begin != other.begin)
      report.add({.rule = "place", .node = other.node, .otherNode = first.node, .buffer = other.buffer},
                 fmt::format("{} keeps {} at {} of the pinned pool, but {} keeps it at {}",
                             nodeLabel(description, other.node), pageLabel(description, other.buffer, other.page),
                             other.begin, nodeLabel(description, first.node), first.begin));
    return true;
  };
  places.erase(std::unique(places.begin(), places.end(), samePage), places.end());
  return places;
}

} // namespace

void checkRows(const Description &description, Report &report) {
  const JoinedCopies joined(description);
  for (const CopyRows &rows : joined.all()) {
    const std::string fault = description.nodes[rows.front()].joined
                                  ? fmt::format("node {} is the first copy of its direction", rows.front())
                                  : joined.faultOf(rows);
    if (!fault.empty())
      report.add({.rule = "rows", .node = rows.front(), .otherNode = rows.back()},
                 fmt::format("{} and {} others are joined, and cannot be one copy: {}",
                             nodeLabel(description, rows.front()), rows.size() - 1, fault));
  }
}

void checkHostPlaces(const Description &description, Report &report) {
  std::vector<HostPlace> places = hostPlaces(description, report);
  std::stable_sort(places.begin(), places.end(),
                   [](const HostPlace &left, const HostPlace &right) { return left.begin < right.begin; });
  for (std::size_t i = 1; i < places.size(); ++i) {
    const HostPlace &left = places[i - 1];
    const HostPlace &right = places[i];
    if (left.begin + pageRange(description, left.buffer, left.page).size > right.begin)
      report.add({.rule = "overlap",
                  .node = right.node,
                  .otherNode = left.node,
                  .buffer = right.buffer,
                  .otherBuffer = left.buffer},
                 fmt::format("{} and {} overlap in the pinned pool at {}",
                             pageLabel(description, left.buffer, left.page),
                             pageLabel(description, right.buffer, right.page), right.begin));
  }
}

} // namespace pumpgraph::check
