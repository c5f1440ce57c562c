// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Sweeps.h"

#include "passes/analysis/Index.h"
#include "pumpgraph/graph/Ranges.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>

namespace pumpgraph {
namespace {

enum class CellIndex : std::uint32_t {};

/// Bytes of one buffer that every access covers or misses.
struct Cell {
  BufferIndex buffer = 0;
  std::uint64_t bytes = 0;
  bool isPrivate = false;
  bool isLive = false;
  NodeIndex firstUse = 0;
  NodeIndex lastUse = 0;
};

struct NodeSpan {
  NodeIndex first = 0;
  NodeIndex last = 0; ///< included

  bool holds(NodeIndex node) const { return first <= node && node <= last; }
};

/// A longest run of nodes that touch no byte twice.
struct Walk {
  NodeSpan nodes;
  std::vector<CellIndex> touched; ///< of private buffers, each once
};

bool isUse(const Access &access) {
  return access.may != modeNone && access.range.size > 0;
}

bool isLive(const Buffer &buffer) {
  return buffer.liveIn || buffer.liveOut;
}

/// A step as sets of cells, one a node.
class CellView {
public:
  explicit CellView(const Description &step) : step_(step) {
    cutCells();
    collectUses();
    for (const Cell &cell : cells_)
      liveBytes_ += cell.isPrivate && cell.isLive ? cell.bytes : 0;
  }

  const Description &step() const { return step_; }
  const Cell &cell(CellIndex index) const { return cells_[index]; }
  std::size_t cellCount() const { return cells_.size(); }
  /// Each once.
  std::span<const CellIndex> usedBy(NodeIndex node) const {
    return std::span(uses_).subspan(usesBegin_[node], usesBegin_[node + 1] - usesBegin_[node]);
  }
  NodeSpan allNodes() const { return {0, static_cast<NodeIndex>(step_.nodes.size() - 1)}; }
  /// Of private live buffers, as far as the step uses them.
  std::uint64_t liveBytes() const { return liveBytes_; }

private:
  void cutCells() {
    cuts_.resize(step_.buffers.size());
    for (const Node &node : step_.nodes)
      for (const Access &access : node.accesses)
        if (!isAdded(node.kind) && isUse(access))
          cuts_[access.buffer].insert(cuts_[access.buffer].end(), {access.range.offset, access.range.end()});
    for (BufferIndex buffer = 0; buffer < cuts_.size(); ++buffer) {
      std::vector<std::uint64_t> &cuts = cuts_[buffer];
      std::sort(cuts.begin(), cuts.end());
      cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
      firstCell_.push_back(static_cast<std::uint32_t>(cells_.size()));
      const Buffer &described = step_.buffers[buffer];
      for (std::size_t i = 1; i < cuts.size(); ++i)
        cells_.add({buffer, cuts[i] - cuts[i - 1], described.isPrivate, isLive(described), 0, 0});
    }
  }

  void collectUses() {
    std::vector<bool> isUsed(cells_.size());
    for (NodeIndex n = 0; n < step_.nodes.size(); ++n) {
      usesBegin_.push_back(uses_.size());
      if (isAdded(step_.nodes[n].kind))
        continue;
      for (const Access &access : step_.nodes[n].accesses)
        if (isUse(access))
          addCells(access);
      const auto begin = uses_.begin() + static_cast<std::ptrdiff_t>(usesBegin_.back());
      std::sort(begin, uses_.end());
      uses_.erase(std::unique(begin, uses_.end()), uses_.end());
      for (CellIndex index : usedBySoFar()) {
        Cell &cell = cells_[index];
        const auto position = static_cast<std::size_t>(index);
        cell.firstUse = isUsed[position] ? cell.firstUse : n;
        cell.lastUse = n;
        isUsed[position] = true;
      }
    }
    usesBegin_.push_back(uses_.size());
    for (std::size_t i = 0; i < isUsed.size(); ++i) // what lies between accesses
      cells_[static_cast<CellIndex>(i)].bytes *= isUsed[i] ? 1 : 0;
  }

  std::span<const CellIndex> usedBySoFar() const { return std::span(uses_).subspan(usesBegin_.back()); }

  void addCells(const Access &access) {
    const std::vector<std::uint64_t> &cuts = cuts_[access.buffer];
    auto cut = std::lower_bound(cuts.begin(), cuts.end(), access.range.offset);
    for (; *cut != access.range.end(); ++cut)
      uses_.push_back(static_cast<CellIndex>(firstCell_[access.buffer] + (cut - cuts.begin())));
  }

  const Description &step_;
  std::vector<std::vector<std::uint64_t>> cuts_; ///< by buffer: where accesses begin and end
  std::vector<std::uint32_t> firstCell_;         ///< by buffer
  IndexedVector<CellIndex, Cell> cells_;
  std::vector<CellIndex> uses_; ///< by node
  std::vector<std::size_t> usesBegin_;
  std::uint64_t liveBytes_ = 0;
};

/// Cuts a span of nodes into walks, from its front, so that there are as few as possible.
class WalkFinder {
public:
  explicit WalkFinder(const CellView &view) : view_(view), seen_(view.cellCount()) {}

  std::vector<Walk> run(NodeSpan span) {
    for (NodeIndex node = span.first; node <= span.last; ++node)
      if (!view_.usedBy(node).empty())
        visit(node);
    return std::move(walks_);
  }

private:
  struct Seen {
    std::optional<NodeIndex> node;
    std::size_t walk = 0;
  };

  void visit(NodeIndex node) {
    const bool continues = before_ && isSameOperation(*before_, node);
    const auto isTouchedAnew = [&](CellIndex cell) { return !continues || seen_[cell].node != before_; };
    const std::span<const CellIndex> used = view_.usedBy(node);
    const bool repeats = std::any_of(used.begin(), used.end(), [&](CellIndex cell) {
      return isTouchedAnew(cell) && seen_[cell].node && seen_[cell].walk + 1 == walks_.size();
    });
    if (walks_.empty() || repeats)
      walks_.push_back({{node, node}, {}});
    for (const CellIndex cell : used) {
      if (isTouchedAnew(cell) && view_.cell(cell).isPrivate)
        walks_.back().touched.push_back(cell);
      seen_[cell] = {node, walks_.size() - 1};
    }
    walks_.back().nodes.last = node;
    before_ = node;
  }

  bool isSameOperation(NodeIndex a, NodeIndex b) const {
    const std::string &name = view_.step().nodes[a].name;
    return !name.empty() && name == view_.step().nodes[b].name;
  }

  const CellView &view_;
  IndexedVector<CellIndex, Seen> seen_;
  std::optional<NodeIndex> before_; ///< the node before, of those that use anything
  std::vector<Walk> walks_;
};

class SweepFinder {
public:
  explicit SweepFinder(const Description &step) : view_(step), isState_(view_.cellCount()) {}

  std::vector<RepeatedSweeps> run() {
    if (view_.liveBytes() == 0)
      return {};
    const std::vector<Walk> walks = WalkFinder(view_).run(view_.allNodes());
    chooseState(walks);
    std::vector<RepeatedSweeps> found;
    for (const NodeSpan span : sweepsInARow(walks))
      if (const std::optional<NodeSpan> trimmed = trim(span))
        if (const std::optional<RepeatedSweeps> sweeps = describe(*trimmed))
          found.push_back(*sweeps);
    return found;
  }

private:
  std::uint64_t leastBytes() const { return view_.liveBytes() / RepeatedSweeps::leastShare; }

  bool isSweep(const Walk &walk) const {
    std::uint64_t bytes = 0;
    std::set<BufferIndex> buffers;
    for (const CellIndex index : walk.touched) {
      if (!isState_[index])
        continue;
      bytes += view_.cell(index).bytes;
      buffers.insert(view_.cell(index).buffer);
    }
    return buffers.size() >= RepeatedSweeps::leastBuffers && bytes >= leastBytes();
  }

  /// What lives across the step, and what is touched by a sweep over that: gradients and intermediate results.
  void chooseState(const std::vector<Walk> &walks) {
    for (const Walk &walk : walks)
      for (const CellIndex index : walk.touched)
        isState_[index] = view_.cell(index).isLive;
    std::vector<CellIndex> beside;
    for (const Walk &walk : walks)
      if (isSweep(walk))
        beside.insert(beside.end(), walk.touched.begin(), walk.touched.end());
    for (const CellIndex index : beside)
      isState_[index] = true;
  }

  /// Two sweeps are in a row if what is touched between them is less than a sweep.
  std::vector<NodeSpan> sweepsInARow(const std::vector<Walk> &walks) const {
    std::vector<NodeSpan> rows;
    std::uint64_t bytesSince = leastBytes();
    for (const Walk &walk : walks) {
      if (!isSweep(walk)) {
        for (const CellIndex index : walk.touched)
          bytesSince += view_.cell(index).bytes;
        continue;
      }
      if (bytesSince < leastBytes())
        rows.back().last = walk.nodes.last;
      else
        rows.push_back(walk.nodes);
      bytesSince = 0;
    }
    return rows;
  }

  /// A walk also holds what happens to lie before it or after it, such as the end of the backward pass, and operations
  /// on gradients alone, such as their norm. Those are left out.
  std::optional<NodeSpan> trim(NodeSpan span) const {
    const auto isLastUse = [&](const Cell &cell) { return cell.lastUse == span.first; };
    const auto isFirstUse = [&](const Cell &cell) { return cell.firstUse == span.last; };
    while (span.first < span.last && !worksOnState(span.first, isLastUse))
      ++span.first;
    while (span.first < span.last && !worksOnState(span.last, isFirstUse))
      --span.last;
    return span.first < span.last ? std::optional(span) : std::nullopt;
  }

  /// At least a quarter of what the node uses is live (a parameter, of it, its gradient and two results), and at most
  /// half is neither live nor of any use to the other nodes.
  template <typename IsForeign> bool worksOnState(NodeIndex node, IsForeign isForeign) const {
    std::uint64_t bytes = 0, liveBytes = 0, foreignBytes = 0;
    for (const CellIndex index : view_.usedBy(node)) {
      const Cell &cell = view_.cell(index);
      if (!cell.isPrivate)
        continue;
      bytes += cell.bytes;
      liveBytes += cell.isLive ? cell.bytes : 0;
      foreignBytes += !cell.isLive && isForeign(cell) ? cell.bytes : 0;
    }
    return liveBytes > 0 && liveBytes >= bytes / 4 && foreignBytes <= bytes / 2;
  }

  std::optional<RepeatedSweeps> describe(NodeSpan span) const {
    const std::vector<Walk> walks = WalkFinder(view_).run(span);
    RepeatedSweeps sweeps;
    sweeps.first = span.first;
    sweeps.last = span.last;
    sweeps.sweeps = static_cast<std::uint32_t>(
        std::count_if(walks.begin(), walks.end(), [&](const Walk &walk) { return isSweep(walk); }));
    for (NodeIndex node = span.first; node <= span.last; ++node) {
      const std::span<const CellIndex> used = view_.usedBy(node);
      sweeps.nodes += std::any_of(used.begin(), used.end(), [&](CellIndex cell) { return view_.cell(cell).isPrivate; });
    }
    std::vector<bool> isCounted(view_.cellCount());
    for (const Walk &walk : walks) {
      for (const CellIndex index : walk.touched) {
        const Cell &cell = view_.cell(index);
        const bool hasValueOutside = cell.isLive || !span.holds(cell.firstUse) || !span.holds(cell.lastUse);
        const bool isFirst = hasValueOutside && !isCounted[static_cast<std::size_t>(index)];
        (isFirst ? sweeps.stateBytes : sweeps.touchedAgainBytes) += cell.bytes;
        isCounted[static_cast<std::size_t>(index)] = true;
      }
    }
    if (sweeps.sweeps < 2 || sweeps.touchedAgainBytes < view_.liveBytes() / RepeatedSweeps::leastShareAgain)
      return std::nullopt;
    return sweeps;
  }

  CellView view_;
  IndexedVector<CellIndex, bool> isState_;
};

/// What a page goes through, as far as the nodes of one span are concerned.
struct Page {
  bool isUsed = false;
  NodeIndex firstUse = 0;
  NodeIndex lastUse = 0;       ///< so far
  bool hasComeUp = false;      ///< since its last use
  std::uint64_t timesUp = 0;   ///< for a use in the span
  std::uint64_t timesDown = 0; ///< after a use in the span
};

class Transfers {
public:
  Transfers(const Description &step, NodeSpan span) : step_(step), span_(span), pages_(step.buffers.size()) {
    for (BufferIndex buffer = 0; buffer < pages_.size(); ++buffer)
      if (step.buffers[buffer].isPrivate)
        pages_[buffer].resize(step.pageCount(buffer));
  }

  Traffic beyondOneWalk() {
    for (NodeIndex node = 0; node < step_.nodes.size(); ++node)
      visit(node);
    Traffic traffic;
    for (BufferIndex buffer = 0; buffer < pages_.size(); ++buffer) {
      for (std::size_t index = 0; index < pages_[buffer].size(); ++index) {
        const Page &page = pages_[buffer][index];
        const std::uint64_t bytes = std::min(step_.pageBytes, step_.buffers[buffer].size - index * step_.pageBytes);
        const bool live = isLive(step_.buffers[buffer]);
        traffic.upBytes += bytes * beyondOne(page.timesUp, live || page.firstUse < span_.first);
        traffic.downBytes += bytes * beyondOne(page.timesDown, live || page.lastUse > span_.last);
      }
    }
    return traffic;
  }

private:
  static std::uint64_t beyondOne(std::uint64_t times, bool isOneNeeded) {
    return times - std::min<std::uint64_t>(times, isOneNeeded ? 1 : 0);
  }

  void visit(NodeIndex index) {
    const Node &node = step_.nodes[index];
    if (movesUp(node.kind))
      forEachPage(node.buffer, node.range, [](Page &page) { page.hasComeUp = true; });
    if (movesDown(node.kind))
      forEachPage(node.buffer, node.range, [&](Page &page) {
        page.timesDown += page.isUsed && span_.holds(page.lastUse) ? 1 : 0;
        page.hasComeUp = false;
      });
    if (isAdded(node.kind))
      return;
    for (const Access &access : node.accesses) // one that may do nothing too: its page is brought up for it
      forEachPage(access.buffer, access.range, [&](Page &page) { use(page, index); });
  }

  void use(Page &page, NodeIndex node) {
    page.timesUp += page.hasComeUp && span_.holds(node) ? 1 : 0;
    page.hasComeUp = false;
    page.firstUse = page.isUsed ? page.firstUse : node;
    page.lastUse = node;
    page.isUsed = true;
  }

  template <typename Visit> void forEachPage(BufferIndex buffer, const Range &range, Visit visit) {
    for (const std::uint64_t page : pagesIn(range, step_.pageBytes))
      if (page < pages_[buffer].size())
        visit(pages_[buffer][page]);
  }

  const Description &step_;
  NodeSpan span_;
  std::vector<std::vector<Page>> pages_; ///< by buffer; none for one that is not private
};

} // namespace

std::vector<RepeatedSweeps> findRepeatedSweeps(const Description &step) {
  std::vector<RepeatedSweeps> found = SweepFinder(step).run();
  for (RepeatedSweeps &sweeps : found)
    sweeps.saved = Transfers(step, {sweeps.first, sweeps.last}).beyondOneWalk();
  return found;
}

} // namespace pumpgraph
