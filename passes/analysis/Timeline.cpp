// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Timeline.h"

#include "passes/analysis/HostedAccess.h"
#include "pumpgraph/graph/Reliance.h"

#include <algorithm>

namespace pumpgraph {

namespace {

bool isCapturedNode(const Node &node) {
  return !isResidency(node.kind) && !isCopy(node.kind);
}

/// Pages an access touches, and those of them it certainly overwrites without reading: [first, last).
struct TouchedPages {
  std::uint64_t first, last;
  std::uint64_t overwrittenFirst, overwrittenLast;
};

TouchedPages touchedPages(const Access &access, std::uint64_t bufferBytes, std::uint64_t pageBytes) {
  TouchedPages pages{access.range.offset / pageBytes, (access.range.end() + pageBytes - 1) / pageBytes, 0, 0};
  if (reliableMust(access) != modeWrite)
    return pages;
  pages.overwrittenFirst = (access.range.offset + pageBytes - 1) / pageBytes;
  pages.overwrittenLast = access.range.end() >= bufferBytes ? pages.last : access.range.end() / pageBytes;
  if (pages.overwrittenLast <= pages.overwrittenFirst)
    pages.overwrittenFirst = pages.overwrittenLast = 0;
  return pages;
}

} // namespace

Timeline::Timeline(const Description &captured, std::uint64_t pieceBytes, const Machine &machine,
                   const ApartPages &apart)
    : pageBytes_(captured.pageBytes),
      mostPagesOfPiece_(static_cast<std::uint32_t>(std::max<std::uint64_t>(1, pieceBytes / pageBytes_))),
      times_(inMemoryTimes(captured, machine)) {
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b)
    if (!captured.buffers[b].isPrivate)
      exclusivePages_ += captured.pageCount(b);
  cutPieces(captured, apart);
  groupPieces(apart);
  collectUses(captured);
  sortUsesByNode(static_cast<NodeIndex>(captured.nodes.size()));
  countPeak();
}

/// Cuts every private buffer where an access or a part of `apart` begins or ends, where what is given of its pages
/// changes, and before a partial last page, and then into pieces of at most so many pages.
void Timeline::cutPieces(const Description &captured, const ApartPages &apart) {
  std::vector<std::vector<std::uint64_t>> cuts(captured.buffers.size());
  for (const Node &node : captured.nodes) {
    if (!isCapturedNode(node))
      continue;
    for (const Access &access : node.accesses) {
      const Buffer &buffer = captured.buffers[access.buffer];
      if (!buffer.isPrivate || access.range.size == 0)
        continue;
      const TouchedPages pages = touchedPages(access, buffer.size, pageBytes_);
      std::vector<std::uint64_t> &list = cuts[access.buffer];
      list.insert(list.end(), {pages.first, pages.last});
      if (pages.overwrittenLast > pages.overwrittenFirst)
        list.insert(list.end(), {pages.overwrittenFirst, pages.overwrittenLast});
    }
  }
  for (const std::vector<BufferPart> &group : apart)
    for (const BufferPart &part : group)
      cuts[part.buffer].insert(cuts[part.buffer].end(), {part.range.offset / pageBytes_,
                                                         std::min((part.range.end() + pageBytes_ - 1) / pageBytes_,
                                                                  captured.pageCount(part.buffer))});
  std::vector<bool> isContinued(captured.buffers.size(), false);
  for (const Buffer &buffer : captured.buffers)
    if (buffer.continues != noBuffer)
      isContinued[buffer.continues] = true;
  for (BufferIndex b = 0; b < captured.buffers.size(); ++b) {
    firstPieceOfBuffer_.push_back(static_cast<PieceIndex>(pieces_.size()));
    const Buffer &buffer = captured.buffers[b];
    if (!buffer.isPrivate)
      continue;
    std::vector<std::uint64_t> &list = cuts[b];
    list.insert(list.end(), {0, buffer.size / pageBytes_, captured.pageCount(b)});
    for (const std::vector<Range> *ranges : {&buffer.resident, &buffer.mirrored, &buffer.hosted})
      for (const Range &range : *ranges)
        list.insert(list.end(), {range.offset / pageBytes_, (range.end() + pageBytes_ - 1) / pageBytes_});
    for (std::size_t page = 1; page < buffer.frames.size(); ++page)
      if ((buffer.frames[page] == noFrame) != (buffer.frames[page - 1] == noFrame))
        list.push_back(page);
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    for (std::size_t i = 0; i + 1 < list.size(); ++i) {
      if (overlaps(buffer.hosted, {list[i] * pageBytes_, 1}))
        continue;
      for (std::uint64_t page = list[i]; page < list[i + 1]; page += mostPagesOfPiece_) {
        const std::uint64_t end = std::min(page + mostPagesOfPiece_, list[i + 1]);
        Piece piece;
        piece.buffer = b;
        piece.firstPage = static_cast<std::uint32_t>(page);
        piece.pageCount = static_cast<std::uint32_t>(end - page);
        piece.bytes = std::min(end * pageBytes_, buffer.size) - page * pageBytes_;
        piece.liveIn = buffer.liveIn;
        piece.liveOut = buffer.liveOut || buffer.liveIn;
        piece.continues = buffer.continues != noBuffer;
        piece.isContinued = isContinued[b];
        pieces_.add(piece);
      }
    }
  }
  firstPieceOfBuffer_.push_back(static_cast<PieceIndex>(pieces_.size()));
}

void Timeline::groupPieces(const ApartPages &apart) {
  apartGroups_ = IndexedVector<PieceIndex, std::vector<std::uint32_t>>(pieces_.size(), {});
  apartPieces_.resize(apart.size());
  for (std::uint32_t group = 0; group < apart.size(); ++group)
    for (const BufferPart &part : apart[group]) {
      const auto begin = static_cast<std::size_t>(firstPieceOfBuffer_[part.buffer]);
      const auto end = static_cast<std::size_t>(firstPieceOfBuffer_[part.buffer + 1]);
      for (std::size_t i = begin; i < end; ++i) {
        const PieceIndex piece = static_cast<PieceIndex>(i);
        const Range pages{pieces_[piece].firstPage * pageBytes_, pieces_[piece].pageCount * pageBytes_};
        std::vector<std::uint32_t> &groups = apartGroups_[piece];
        if (part.range.size == 0 || !part.range.overlaps(pages) || (!groups.empty() && groups.back() == group))
          continue;
        groups.push_back(group);
        apartPieces_[group].push_back(piece);
      }
    }
}

void Timeline::collectUses(const Description &captured) {
  std::vector<std::vector<Use>> uses(pieces_.size());
  for (NodeIndex n = 0; n < captured.nodes.size(); ++n) {
    if (!isCapturedNode(captured.nodes[n]))
      continue;
    for (const Access &access : captured.nodes[n].accesses) {
      const Buffer &buffer = captured.buffers[access.buffer];
      if (!buffer.isPrivate || access.range.size == 0)
        continue;
      const TouchedPages pages = touchedPages(access, buffer.size, pageBytes_);
      const auto begin = pieces_.begin() + static_cast<std::ptrdiff_t>(firstPieceOfBuffer_[access.buffer]);
      const auto end = pieces_.begin() + static_cast<std::ptrdiff_t>(firstPieceOfBuffer_[access.buffer + 1]);
      auto piece = std::partition_point(begin, end, [&](const Piece &p) { return p.firstPage < pages.first; });
      for (; piece != end && piece->firstPage < pages.last; ++piece) {
        const bool overwrites =
            piece->firstPage >= pages.overwrittenFirst && piece->firstPage + piece->pageCount <= pages.overwrittenLast;
        std::vector<Use> &list = uses[static_cast<std::size_t>(piece - pieces_.begin())];
        if (list.empty() || list.back().node != n)
          list.push_back({n, static_cast<PieceIndex>(piece - pieces_.begin()), false, false, false, true, 0});
        if (reliableMay(access) != modeNone)
          list.back().slowdown = std::max(list.back().slowdown, access.slowdown);
        list.back().writes |= (reliableMay(access) & modeWrite) != 0;
        list.back().overwrites &= overwrites;
        list.back().readsOld |= !overwrites && reliableMay(access) != modeNone;
        list.back().certainlyReads |= (reliableMust(access) & modeRead) != 0;
      }
    }
  }
  for (std::size_t i = 0; i < uses.size(); ++i) {
    Piece &piece = pieces_[static_cast<PieceIndex>(i)];
    const auto first = std::find_if(uses[i].begin(), uses[i].end(), [](const Use &use) { return use.writes; });
    if (!piece.hasValueBefore() && first != uses[i].end())
      first->readsOld = first->certainlyReads;
    piece.usesBegin = static_cast<std::uint32_t>(uses_.size());
    uses_.insert(uses_.end(), uses[i].begin(), uses[i].end());
    piece.usesEnd = static_cast<std::uint32_t>(uses_.size());
  }
}

void Timeline::sortUsesByNode(NodeIndex nodeCount) {
  nodeBegin_.assign(nodeCount + 1, 0);
  for (const Use &use : uses_)
    ++nodeBegin_[use.node + 1];
  for (NodeIndex n = 0; n < nodeCount; ++n)
    nodeBegin_[n + 1] += nodeBegin_[n];
  byNode_.resize(uses_.size());
  std::vector<std::uint32_t> next(nodeBegin_.begin(), nodeBegin_.end() - 1);
  for (std::uint32_t i = 0; i < uses_.size(); ++i)
    byNode_[next[uses_[i].node]++] = i;
}

std::uint64_t Timeline::workingSetPages(NodeIndex node) const {
  std::uint64_t pages = 0;
  for (std::uint32_t position : usesAt(node))
    pages += pieces_[uses_[position].piece].pageCount;
  return pages;
}

std::optional<Timeline::Life> Timeline::lifeOf(PieceIndex index) const {
  const Piece &piece = pieces_[index];
  const std::span<const Use> uses = usesOf(index);
  if (uses.empty()) {
    if (!piece.liveOut)
      return std::nullopt;
    return Life{0, nodeCount(), true};
  }
  Life life{uses.front().node, uses.back().node, false};
  if (piece.liveOut)
    life.last = nodeCount();
  if (piece.liveIn && uses.front().needsValue())
    life = {0, nodeCount(), true};
  return life;
}

void Timeline::countPeak() {
  // begins[n]: pages that come at node n; ends[n]: pages that go after node n. The boundary is one more node.
  std::vector<std::uint64_t> begins(nodeCount() + 1, 0), ends(nodeCount() + 1, 0);
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const std::optional<Life> life = lifeOf(static_cast<PieceIndex>(i));
    if (!life)
      continue;
    begins[life->first] += pieces_[static_cast<PieceIndex>(i)].pageCount;
    ends[life->last] += pieces_[static_cast<PieceIndex>(i)].pageCount;
  }
  std::uint64_t live = 0, peak = 0;
  for (std::size_t n = 0; n < begins.size(); ++n) {
    live += begins[n];
    peak = std::max(peak, live);
    live -= ends[n];
  }
  peakPages_ = exclusivePages_ + peak;
}

InMemoryTimes inMemoryTimes(const Description &captured, const Machine &machine) {
  InMemoryTimes times;
  const std::size_t count = captured.nodes.size();
  times.startUs.assign(count, 0);
  times.endUs.assign(count, 0);
  std::vector<std::uint32_t> begin(count + 1, 0);
  for (const Edge &edge : captured.edges)
    ++begin[edge.to + 1];
  for (std::size_t n = 0; n < count; ++n)
    begin[n + 1] += begin[n];
  std::vector<NodeIndex> predecessors(captured.edges.size());
  std::vector<std::uint32_t> next(begin.begin(), begin.end() - 1);
  for (const Edge &edge : captured.edges)
    predecessors[next[edge.to]++] = edge.from;
  const std::vector<Traffic> hosted = hostedTraffic(captured).loadByNode;
  for (std::size_t n = 0; n < count; ++n) {
    for (std::uint32_t i = begin[n]; i < begin[n + 1]; ++i)
      times.startUs[n] = std::max(times.startUs[n], times.endUs[predecessors[i]]);
    times.endUs[n] = times.startUs[n] + (isCapturedNode(captured.nodes[n]) ? costUsOf(captured.nodes[n]) : 0.0) +
                     linkUs(hosted[n], machine);
    times.totalUs = std::max(times.totalUs, times.endUs[n]);
  }
  return times;
}

} // namespace pumpgraph
