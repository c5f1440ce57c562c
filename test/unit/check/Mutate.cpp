// SPDX-License-Identifier: Apache-2.0
#include "test/unit/check/Mutate.h"

#include "pumpgraph/graph/HostedChains.h"
#include "pumpgraph/graph/Reliance.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <map>
#include <set>
#include <utility>

namespace pumpgraph::test {

namespace {

constexpr std::size_t maxPlannedNodes = 512;

bool isTransfer(const Node &node) {
  return movesDown(node.kind) || movesUp(node.kind);
}
bool movesOrDiscards(const Node &node) {
  return isTransfer(node) || node.kind == NodeKind::Discard;
}

using PageKey = std::pair<BufferIndex, std::uint64_t>;

/// Whether its value comes from another address, or goes on at one.
bool isInChain(const Description &step, BufferIndex buffer) {
  return step.buffers[buffer].continues != noBuffer ||
         std::any_of(step.buffers.begin(), step.buffers.end(),
                     [&](const Buffer &other) { return other.continues == buffer; });
}

/// The pages of private buffers that a node touches, but for hosted ones that have one address: these share nothing
/// with anybody.
std::set<PageKey> pagesOf(const Description &step, const Node &node) {
  std::set<PageKey> pages;
  const auto add = [&](BufferIndex buffer, Range range) {
    if (step.buffers[buffer].isPrivate && range.size > 0)
      for (std::uint64_t page = range.offset / step.pageBytes; page * step.pageBytes < range.end(); ++page)
        if (!overlaps(step.buffers[buffer].hosted, {page * step.pageBytes, 1}) || isInChain(step, buffer))
          pages.insert({buffer, page});
  };
  for (const Access &access : node.accesses)
    add(access.buffer, access.range);
  if (movesOrDiscards(node))
    add(node.buffer, node.range);
  return pages;
}

std::int32_t frameOf(const Description &step, const PageKey &page) {
  const std::vector<std::int32_t> &frames = step.buffers[page.first].frames;
  return frames.empty() ? noFrame : frames[page.second];
}

/// Hosted pages are in none.
bool areInOneFrame(const Description &step, const PageKey &page, const PageKey &other) {
  return frameOf(step, page) != noFrame && frameOf(step, page) == frameOf(step, other);
}

/// Addresses of one page, which does not leave its frame between them.
bool areOnePage(const Description &step, const PageKey &page, const PageKey &other) {
  if (page.second != other.second)
    return false;
  PageKey at = std::max(page, other);
  const PageKey &first = std::min(page, other);
  while (at != first && at.first != noBuffer && areInOneFrame(step, at, first))
    at.first = step.buffers[at.first].continues;
  return at == first;
}

bool touchesFrameOf(const Description &step, const Node &node, const Node &transfer) {
  for (const PageKey &page : pagesOf(step, node))
    for (const PageKey &moved : pagesOf(step, transfer))
      if (page == moved || areInOneFrame(step, page, moved))
        return true;
  return false;
}

/// Edges by their ends, at most one for each pair, full ones preferred.
class EdgeMap {
public:
  void add(NodeIndex from, NodeIndex to, EdgeKind kind) {
    const auto [edge, isNew] = edges_.try_emplace({from, to}, kind);
    if (!isNew && kind == EdgeKind::Full)
      edge->second = kind;
  }
  std::vector<Edge> list() const {
    std::vector<Edge> edges;
    for (const auto &[ends, kind] : edges_)
      edges.push_back({ends.first, ends.second, kind});
    return edges;
  }

private:
  std::map<std::pair<NodeIndex, NodeIndex>, EdgeKind> edges_;
};

Description withoutNode(const Description &plan, NodeIndex gone, bool bridge) {
  Description mutant = plan;
  mutant.nodes.erase(mutant.nodes.begin() + gone);
  const auto renumbered = [&](NodeIndex node) { return node > gone ? node - 1 : node; };
  EdgeMap edges;
  for (const Edge &edge : plan.edges)
    if (edge.from != gone && edge.to != gone)
      edges.add(renumbered(edge.from), renumbered(edge.to), edge.kind);
  for (const Edge &in : plan.edges)
    for (const Edge &out : plan.edges)
      if (bridge && in.to == gone && out.from == gone)
        edges.add(renumbered(in.from), renumbered(out.to), EdgeKind::Full);
  mutant.edges = edges.list();
  return mutant;
}

/// Whether one of the two nodes may write a byte that the other touches.
bool conflict(const Description &step, const Node &left, const Node &right) {
  for (const Access &first : left.accesses)
    for (const Access &second : right.accesses)
      if (capturedBuffer(step.buffers, first.buffer) == capturedBuffer(step.buffers, second.buffer) &&
          first.range.overlaps(second.range) && ((reliableMay(first) | reliableMay(second)) & modeWrite) != 0)
        return true;
  return false;
}

/// `plan` with one more node. All events on its frames are ordered against it, and so is what it conflicts with: where
/// it is is its only fault.
Description withNodeAt(const Description &plan, NodeIndex position, const Node &node) {
  Description mutant = plan;
  mutant.nodes.insert(mutant.nodes.begin() + position, node);
  EdgeMap edges;
  const auto renumbered = [&](NodeIndex index) { return index >= position ? index + 1 : index; };
  for (const Edge &edge : plan.edges)
    edges.add(renumbered(edge.from), renumbered(edge.to), edge.kind);
  for (NodeIndex other = 0; other < mutant.nodes.size(); ++other)
    if (other != position &&
        (touchesFrameOf(mutant, mutant.nodes[other], node) || conflict(mutant, mutant.nodes[other], node)))
      edges.add(std::min(other, position), std::max(other, position), EdgeKind::Full);
  mutant.edges = edges.list();
  return mutant;
}

/// `plan` with its node `moved` directly after node `target` if that comes later, directly before it if it comes
/// earlier.
Description withNodeMoved(const Description &plan, NodeIndex moved, NodeIndex target) {
  return withNodeAt(withoutNode(plan, moved, true), target, plan.nodes[moved]); // the two change places
}

class Mutator {
public:
  explicit Mutator(const Description &plan)
      : plan_(plan), hasRepetitions_(std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const Node &node) {
          return node.kind == NodeKind::Rematerialize;
        })) {}

  std::vector<Mutant> run() {
    for (NodeIndex node = 0; node < plan_.nodes.size(); ++node) {
      if (isTransfer(plan_.nodes[node]))
        mutateTransfer(node);
      if (plan_.nodes[node].kind == NodeKind::Rematerialize)
        mutateRepetition(node);
      if (hasRepetitions_ && plan_.nodes[node].isPure && plan_.nodes[node].captured != notCaptured)
        repeat(node);
    }
    for (std::size_t edge = 0; edge < plan_.edges.size(); ++edge)
      mutateEdge(edge);
    mutateFrames();
    mutateBoundary();
    mutateHosted();
    mutateNames();
    Description &poorer = add(Mutation::ShrinkBudget, "by one page");
    poorer.budgetBytes = usedFrames() * plan_.pageBytes - 1;
    return std::move(mutants_);
  }

private:
  Description &add(Mutation mutation, std::string what) { return add(mutation, std::move(what), plan_); }
  Description &add(Mutation mutation, std::string what, Description description) {
    mutants_.push_back({mutation, std::move(what), std::move(description)});
    return mutants_.back().description;
  }
  void mutateTransfer(NodeIndex index);
  void shorten(NodeIndex index);
  void move(NodeIndex index, Mutation mutation);
  void mutateRepetition(NodeIndex index);
  void mutateAside(NodeIndex again, NodeIndex original);
  void repeat(NodeIndex index);
  void moveHostPlace(NodeIndex index);
  void mutateEdge(std::size_t index);
  void mutateFrames();
  void mutateBoundary();
  void mutateHosted();
  void mutateNames();
  std::uint64_t usedFrames() const;

  const Description &plan_;
  bool hasRepetitions_;
  std::vector<Mutant> mutants_;
};

Node repetitionOf(const Node &original) {
  Node again = original;
  again.kind = NodeKind::Rematerialize;
  again.repeats = std::exchange(again.captured, notCaptured);
  std::erase_if(again.accesses, [](const Access &access) { return access.isAside; });
  return again;
}

void Mutator::mutateTransfer(NodeIndex index) {
  const std::string what = fmt::format("node {}", index);
  add(Mutation::DropTransfer, what, withoutNode(plan_, index, true));
  add(Mutation::DropTransferAndEdges, what, withoutNode(plan_, index, false));
  shorten(index);
  move(index, Mutation::MoveTransfer);
  const NodeKind kind = plan_.nodes[index].kind;
  add(Mutation::ReverseTransfer, what).nodes[index].kind = kind == NodeKind::Evict        ? NodeKind::Prefetch
                                                           : kind == NodeKind::Prefetch   ? NodeKind::Evict
                                                           : kind == NodeKind::CopyToHost ? NodeKind::CopyToDevice
                                                                                          : NodeKind::CopyToHost;
  add(Mutation::ForgetTransfer, what).nodes[index].kind = NodeKind::Discard;
  if (isCopy(kind))
    moveHostPlace(index);
}

void Mutator::shorten(NodeIndex index) {
  const Range range = plan_.nodes[index].range;
  if (range.size <= plan_.pageBytes)
    return;
  const std::uint64_t lastPage = (range.end() - 1) / plan_.pageBytes * plan_.pageBytes;
  Node &withoutLast = add(Mutation::ShortenTransfer, fmt::format("node {} at its end", index)).nodes[index];
  withoutLast.range.size = lastPage - range.offset;
  Node &withoutFirst = add(Mutation::ShortenTransfer, fmt::format("node {} at its beginning", index)).nodes[index];
  withoutFirst.range = {range.offset + plan_.pageBytes, range.size - plan_.pageBytes};
  withoutFirst.hostOffset += isCopy(withoutFirst.kind) ? plan_.pageBytes : 0;
}

/// Across the three nearest events on either side.
void Mutator::move(NodeIndex index, Mutation mutation) {
  const Node &node = plan_.nodes[index];
  int found = 0;
  for (NodeIndex target = index + 1; target < plan_.nodes.size() && found < 3; ++target)
    if (touchesFrameOf(plan_, plan_.nodes[target], node)) {
      ++found;
      add(mutation, fmt::format("node {} after node {}", index, target), withNodeMoved(plan_, index, target));
    }
  found = 0;
  for (NodeIndex target = index; target-- > 0 && found < 3;)
    if (touchesFrameOf(plan_, plan_.nodes[target], node)) {
      ++found;
      add(mutation, fmt::format("node {} before node {}", index, target), withNodeMoved(plan_, index, target));
    }
}

void Mutator::mutateRepetition(NodeIndex index) {
  const Node &again = plan_.nodes[index];
  const std::string what = fmt::format("node {}", index);
  add(Mutation::DropRepetition, what, withoutNode(plan_, index, true));
  move(index, Mutation::MoveRepetition);
  for (NodeIndex other = 0; other < index; ++other) {
    const Node &original = plan_.nodes[other];
    if (original.captured == notCaptured)
      continue;
    if (original.captured == again.repeats) {
      add(Mutation::ForgetPure, what).nodes[other].isPure = false;
      mutateAside(index, other);
      continue;
    }
    if (!isRepeatable(original.kind))
      continue;
    const std::string whose = fmt::format("node {} repeats node {}", index, other);
    add(Mutation::RepeatAnother, whose + " in name").nodes[index].repeats = original.captured;
    add(Mutation::RepeatAnother, whose, withNodeAt(withoutNode(plan_, index, true), index, repetitionOf(original)));
  }
  for (std::size_t access = 0; access < again.accesses.size(); ++access) {
    std::vector<Access> &left =
        add(Mutation::DropAccess, fmt::format("{} of node {}", access, index)).nodes[index].accesses;
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(access));
  }
}

void Mutator::mutateAside(NodeIndex again, NodeIndex original) {
  for (std::size_t access = 0; access < plan_.nodes[original].accesses.size(); ++access) {
    const std::string what = fmt::format("{} of node {}", access, original);
    if (plan_.nodes[original].accesses[access].isAside) {
      Description &counted = add(Mutation::CountAside, fmt::format("{} by node {}", what, again));
      counted.nodes[again].accesses.push_back(plan_.nodes[original].accesses[access]);
      counted.nodes[again].accesses.back().isAside = false;
      add(Mutation::ForgetAside, what).nodes[original].accesses[access].isAside = false;
      continue;
    }
    Description &made = add(Mutation::MakeAside, what);
    made.nodes[original].accesses[access].isAside = true;
    for (Node &node : made.nodes)
      if (node.repeats == plan_.nodes[original].captured)
        node.accesses = repetitionOf(made.nodes[original]).accesses;
  }
}

/// Before every node after it, and at the end.
void Mutator::repeat(NodeIndex index) {
  for (NodeIndex place = index + 1; place <= plan_.nodes.size(); ++place)
    add(Mutation::AddRepetition, fmt::format("node {} as node {}", index, place),
        withNodeAt(plan_, place, repetitionOf(plan_.nodes[index])));
}

void Mutator::moveHostPlace(NodeIndex index) {
  for (NodeIndex other = 0; other < plan_.nodes.size(); ++other)
    if (isCopy(plan_.nodes[other].kind) && plan_.nodes[other].buffer != plan_.nodes[index].buffer)
      add(Mutation::MoveHostPlace, fmt::format("node {} to the place of node {}", index, other))
          .nodes[index]
          .hostOffset = plan_.nodes[other].hostOffset;
  add(Mutation::MoveHostPlace, fmt::format("node {} to the end of the pool", index)).nodes[index].hostOffset =
      plan_.hostBytes;
}

void Mutator::mutateEdge(std::size_t index) {
  const Edge &edge = plan_.edges[index];
  const std::string what = fmt::format("from node {} to node {}", edge.from, edge.to);
  Description &without = add(Mutation::RemoveEdge, what);
  without.edges.erase(without.edges.begin() + static_cast<std::ptrdiff_t>(index));
  if (edge.kind == EdgeKind::Full)
    add(Mutation::WeakenEdge, what).edges[index].kind = EdgeKind::Programmatic;
}

void Mutator::mutateFrames() {
  std::set<std::int32_t> frames;
  for (const Buffer &buffer : plan_.buffers)
    frames.insert(buffer.frames.begin(), buffer.frames.end());
  frames.erase(noFrame);
  for (BufferIndex buffer = 0; buffer < plan_.buffers.size(); ++buffer)
    for (std::size_t page = 0; page < plan_.buffers[buffer].frames.size(); ++page)
      for (const std::int32_t frame : frames)
        if (frame != plan_.buffers[buffer].frames[page])
          add(Mutation::ShareFrame, fmt::format("page {} of buffer {} in frame {}", page, buffer, frame))
              .buffers[buffer]
              .frames[page] = frame;
}

/// Takes a page out of ranges, or puts it in if it is not there.
void toggle(std::vector<Range> &ranges, const Range &page) {
  const auto found = std::find_if(ranges.begin(), ranges.end(), [&](const Range &range) {
    return range.offset <= page.offset && page.end() <= range.end();
  });
  if (found == ranges.end()) {
    ranges.push_back(page);
    std::sort(ranges.begin(), ranges.end(),
              [](const Range &left, const Range &right) { return left.offset < right.offset; });
    return;
  }
  const Range whole = *found;
  const auto at = ranges.erase(found);
  std::vector<Range> rest;
  if (whole.offset < page.offset)
    rest.push_back({whole.offset, page.offset - whole.offset});
  if (page.end() < whole.end())
    rest.push_back({page.end(), whole.end() - page.end()});
  ranges.insert(at, rest.begin(), rest.end());
}

void Mutator::mutateBoundary() {
  for (BufferIndex index = 0; index < plan_.buffers.size(); ++index) {
    const Buffer &buffer = plan_.buffers[index];
    if (!buffer.isPrivate)
      continue;
    for (std::uint64_t page = 0; page < plan_.pageCount(index); ++page) {
      const Range bytes{page * plan_.pageBytes, std::min(plan_.pageBytes, buffer.size - page * plan_.pageBytes)};
      const std::string what = fmt::format("page {} of buffer {}", page, index);
      Buffer &moved = add(Mutation::ChangeBoundary, what).buffers[index];
      toggle(moved.resident, bytes);
      if (covers(moved.mirrored, bytes)) // only what is resident can be mirrored
        toggle(moved.mirrored, bytes);
      if (buffer.liveOut && covers(buffer.resident, bytes))
        toggle(add(Mutation::ChangeMirror, what).buffers[index].mirrored, bytes);
    }
  }
}

void Mutator::mutateHosted() {
  for (BufferIndex index = 0; index < plan_.buffers.size(); ++index) {
    const Buffer &buffer = plan_.buffers[index];
    for (std::size_t i = 0; i < buffer.hosted.size(); ++i) {
      const Range range = buffer.hosted[i];
      const std::string what = fmt::format("[{}, {}) of buffer {}", range.offset, range.end(), index);
      std::vector<Range> &without = add(Mutation::DropHosted, what).buffers[index].hosted;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      if (range.size <= plan_.pageBytes)
        continue;
      const std::uint64_t lastPage = (range.end() - 1) / plan_.pageBytes * plan_.pageBytes;
      add(Mutation::ShortenHosted, what + " at its end").buffers[index].hosted[i].size = lastPage - range.offset;
      add(Mutation::ShortenHosted, what + " at its beginning").buffers[index].hosted[i] = {
          range.offset + plan_.pageBytes, range.size - plan_.pageBytes};
    }
  }
  for (NodeIndex index = 0; index < plan_.nodes.size(); ++index)
    if (const Node &node = plan_.nodes[index]; isTransfer(node) && plan_.buffers[node.buffer].hosted.empty()) {
      Description &mutant = add(Mutation::HostTransfer, fmt::format("node {}", index));
      mutant.buffers[node.buffer].hosted = {node.range};
      for (std::uint64_t page = node.range.offset / plan_.pageBytes; page * plan_.pageBytes < node.range.end(); ++page)
        mutant.buffers[node.buffer].frames[page] = noFrame;
    }
}

/// A node finds a buffer at the address before, or at the next one; a transfer moves it there.
void Mutator::mutateNames() {
  for (BufferIndex next = 0; next < plan_.buffers.size(); ++next) {
    const BufferIndex before = plan_.buffers[next].continues;
    for (NodeIndex node = 0; before != noBuffer && node < plan_.nodes.size(); ++node)
      for (const auto &[from, to] : {std::pair(before, next), std::pair(next, before)}) {
        const auto isIt = [&, name = from](const Access &access) { return access.buffer == name; };
        if (movesOrDiscards(plan_.nodes[node]) && plan_.nodes[node].buffer == from)
          add(Mutation::RenameOperand, fmt::format("node {} moves b{}", node, to)).nodes[node].buffer = to;
        if (std::none_of(plan_.nodes[node].accesses.begin(), plan_.nodes[node].accesses.end(), isIt))
          continue;
        Description &mutant = add(Mutation::RenameOperand, fmt::format("node {} names b{}", node, to));
        for (Access &access : mutant.nodes[node].accesses)
          if (isIt(access))
            access.buffer = to;
      }
  }
}

std::uint64_t Mutator::usedFrames() const {
  std::set<std::int32_t> frames;
  for (const Buffer &buffer : plan_.buffers)
    frames.insert(buffer.frames.begin(), buffer.frames.end());
  frames.erase(noFrame);
  return frames.size();
}

/// By node: the nodes that complete before it.
std::vector<std::bitset<maxPlannedNodes>> completedBefore(const Description &step) {
  std::vector<std::bitset<maxPlannedNodes>> before(step.nodes.size());
  for (NodeIndex node = 0; node < step.nodes.size(); ++node)
    for (const Edge &edge : step.edges)
      if (edge.to == node && edge.kind == EdgeKind::Full) {
        before[node] |= before[edge.from];
        before[node].set(edge.from);
      }
  return before;
}

bool mayWrite(const Description &step, const Node &node, const PageKey &page) {
  return std::any_of(node.accesses.begin(), node.accesses.end(), [&](const Access &access) {
    const std::uint64_t begin = page.second * step.pageBytes;
    return access.buffer == page.first && access.range.offset < begin + step.pageBytes && begin < access.range.end() &&
           (reliableMay(access) & modeWrite) != 0;
  });
}

/// Whether the contract wants the two nodes, which both have events on one page at these addresses, ordered for its
/// sake.
bool mustBeOrdered(const Description &step, const Node &left, const PageKey &leftPage, const Node &right,
                   const PageKey &rightPage) {
  if (movesOrDiscards(left))
    return movesOrDiscards(right) || !movesDown(left.kind) || mayWrite(step, right, rightPage);
  if (movesOrDiscards(right))
    return !movesDown(right.kind) || mayWrite(step, left, leftPage);
  return leftPage != rightPage && (mayWrite(step, left, leftPage) || mayWrite(step, right, rightPage));
}

/// Two addresses of one page.
bool areOneValue(const Description &step, const PageKey &page, const PageKey &other) {
  return page.second == other.second &&
         capturedBuffer(step.buffers, page.first) == capturedBuffer(step.buffers, other.first);
}

/// Whether the contract wants one of the two nodes to complete before the other starts.
bool mustBeOrdered(const Description &step, const Node &left, const std::set<PageKey> &leftPages, const Node &right,
                   const std::set<PageKey> &rightPages) {
  for (const PageKey &page : leftPages)
    for (const PageKey &other : rightPages)
      if (areOnePage(step, page, other) ? mustBeOrdered(step, left, page, right, other)
                                        : areInOneFrame(step, page, other) || areOneValue(step, page, other))
        return true;
  return false;
}

/// Whether the contract wants the later node to be the earlier one: what it uses at an address where the page was
/// before is written at one of the two.
bool goesBack(const Description &step, const Node &earlier, const std::set<PageKey> &earlierPages, const Node &later,
              const std::set<PageKey> &laterPages) {
  if (movesOrDiscards(earlier) || movesOrDiscards(later))
    return false;
  for (const PageKey &page : earlierPages)
    for (const PageKey &other : laterPages)
      if (page.first > other.first && areOnePage(step, page, other) && mustBeOrdered(step, earlier, page, later, other))
        return true;
  return false;
}

std::optional<std::string> doubtAboutOrder(const Reference &reference, const Description &step) {
  if (step.nodes.size() > maxPlannedNodes)
    return "too many nodes to tell";
  const std::vector<std::bitset<maxPlannedNodes>> before = completedBefore(step);
  const auto isAgain = [&](NodeIndex node) { return step.nodes[node].kind == NodeKind::Rematerialize; };
  std::vector<std::set<PageKey>> pages;
  for (const Node &node : step.nodes)
    pages.push_back(pagesOf(step, node));
  for (NodeIndex later = 0; later < step.nodes.size(); ++later) {
    std::set<std::int32_t> frames;
    for (const PageKey &page : pages[later])
      if (const std::int32_t frame = frameOf(step, page); frame != noFrame && !frames.insert(frame).second)
        return fmt::format("node {} needs two pages in one frame", later);
    for (NodeIndex earlier = 0; earlier < later; ++earlier) {
      if (!before[later][earlier] && (isAgain(later) || isAgain(earlier)) &&
          conflict(step, step.nodes[earlier], step.nodes[later]))
        return fmt::format("nodes {} and {} must be ordered: one is a repetition", earlier, later);
      if (!before[later][earlier] &&
          mustBeOrdered(step, step.nodes[earlier], pages[earlier], step.nodes[later], pages[later]))
        return fmt::format("nodes {} and {} must be ordered", earlier, later);
      if (goesBack(step, step.nodes[earlier], pages[earlier], step.nodes[later], pages[later]))
        return fmt::format("node {} must complete before node {}", later, earlier);
    }
  }

  std::map<std::int32_t, NodeIndex> nodeOf;
  for (NodeIndex node = 0; node < step.nodes.size(); ++node)
    nodeOf[step.nodes[node].captured] = node;
  for (const Edge &edge : reference.captured().edges) {
    const NodeIndex from = nodeOf[reference.captured().nodes[edge.from].captured];
    const NodeIndex to = nodeOf[reference.captured().nodes[edge.to].captured];
    const bool stillThere =
        std::find(step.edges.begin(), step.edges.end(), Edge{from, to, EdgeKind::Programmatic}) != step.edges.end();
    if (!before[to][from] && !(edge.kind == EdgeKind::Programmatic && stillThere))
      return fmt::format("the captured edge from node {} to node {} is gone", from, to);
  }
  return std::nullopt;
}

std::optional<std::string> doubtAboutPlaces(const Description &step) {
  std::map<std::int32_t, unsigned> pagesInFrame;
  for (const Buffer &buffer : step.buffers)
    for (const std::int32_t frame : buffer.frames)
      if (frame != noFrame)
        ++pagesInFrame[frame];
  if (pagesInFrame.size() * step.pageBytes > step.budgetBytes)
    return "over the budget";
  for (const Buffer &buffer : step.buffers)
    for (std::size_t page = 0; page < buffer.frames.size(); ++page)
      if (buffer.frames[page] != noFrame && overlaps(buffer.hosted, {page * step.pageBytes, 1}))
        return "a hosted page has a frame";
  for (const Buffer &buffer : step.buffers)
    for (const std::int32_t frame : buffer.frames)
      if (!buffer.isPrivate && (frame == noFrame || pagesInFrame[frame] > 1))
        return "an exclusive page has no frame of its own";

  std::map<std::uint64_t, PageKey> pageAt; // by byte of the pool
  const HostedChains hosted(step.buffers);
  for (const Node &node : step.nodes)
    for (std::uint64_t i = 0; isCopy(node.kind) && i < node.range.size; ++i) {
      if (hosted.at(node.buffer, node.range.offset + i) != noBuffer)
        continue;
      const PageKey page{capturedBuffer(step.buffers, node.buffer), (node.range.offset + i) / step.pageBytes};
      if (pageAt.try_emplace(node.hostOffset + i, page).first->second != page)
        return "two pages share a place in host memory";
    }
  return std::nullopt;
}

} // namespace

const char *toText(Mutation mutation) {
  switch (mutation) {
  case Mutation::DropTransfer:
    return "transfer dropped";
  case Mutation::DropTransferAndEdges:
    return "transfer dropped with its edges";
  case Mutation::ShortenTransfer:
    return "transfer shortened";
  case Mutation::MoveTransfer:
    return "transfer moved across an event";
  case Mutation::ReverseTransfer:
    return "transfer reversed";
  case Mutation::ForgetTransfer:
    return "transfer turned into a discard";
  case Mutation::RemoveEdge:
    return "edge removed";
  case Mutation::WeakenEdge:
    return "full edge made programmatic";
  case Mutation::ShareFrame:
    return "page put into another frame";
  case Mutation::ChangeBoundary:
    return "boundary residence changed";
  case Mutation::ChangeMirror:
    return "boundary mirror changed";
  case Mutation::MoveHostPlace:
    return "host place moved";
  case Mutation::ShrinkBudget:
    return "budget made smaller";
  case Mutation::DropHosted:
    return "hosted range dropped";
  case Mutation::ShortenHosted:
    return "hosted range shortened";
  case Mutation::HostTransfer:
    return "moved pages hosted";
  case Mutation::RenameOperand:
    return "operand at another address";
  case Mutation::DropRepetition:
    return "repetition dropped";
  case Mutation::MoveRepetition:
    return "repetition moved across an event";
  case Mutation::AddRepetition:
    return "repetition added";
  case Mutation::RepeatAnother:
    return "repetition of another node";
  case Mutation::ForgetPure:
    return "repeated node not pure";
  case Mutation::DropAccess:
    return "access of a repetition dropped";
  case Mutation::CountAside:
    return "access aside repeated";
  case Mutation::ForgetAside:
    return "access aside no more";
  case Mutation::MakeAside:
    return "access made aside";
  }
  return "";
}

std::vector<Mutant> mutantsOf(const Description &plan) {
  return Mutator(plan).run();
}

std::optional<std::string> doubtAbout(const Reference &reference, const Description &description) {
  if (std::optional<std::string> doubt = doubtAboutPlaces(description))
    return doubt;
  if (std::optional<std::string> doubt = doubtAboutOrder(reference, description))
    return doubt;
  return Interpreter(reference, description).run({Schedule::Kind::InOrder});
}

} // namespace pumpgraph::test
