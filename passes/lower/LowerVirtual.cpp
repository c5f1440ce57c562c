// SPDX-License-Identifier: Apache-2.0
#include "passes/lower/LowerVirtual.h"

#include "passes/analysis/HostPlaces.h"
#include "passes/analysis/Order.h"
#include "pumpgraph/graph/CopyRows.h"
#include "pumpgraph/graph/HostedChains.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <tuple>
#include <utility>

namespace pumpgraph {

namespace {

bool isTransfer(const Node &node) {
  return movesUp(node.kind) || movesDown(node.kind);
}

/// For Order: those that move one way, those that move the other, and all else.
std::uint8_t laneOf(const Node &node) {
  return !isTransfer(node) ? 0 : movesUp(node.kind) ? 1 : 2;
}
bool isCaptured(const Node &node) {
  return !isResidency(node.kind) && !isCopy(node.kind);
}

/// The edges of a description by node, so that nodes can be taken out and joined.
class EdgeSet {
public:
  explicit EdgeSet(const Description &description) : in_(description.nodes.size()) {
    for (const Edge &edge : description.edges)
      in_[edge.to].push_back({edge.from, edge.kind});
  }

  struct In {
    NodeIndex from = 0;
    EdgeKind kind = EdgeKind::Full;
  };
  std::vector<In> &into(NodeIndex node) { return in_[node]; }
  const std::vector<In> &into(NodeIndex node) const { return in_[node]; }
  std::size_t size() const { return in_.size(); }

  /// The nodes that wait for each node.
  std::vector<std::vector<NodeIndex>> successors() const {
    std::vector<std::vector<NodeIndex>> result(in_.size());
    for (NodeIndex n = 0; n < in_.size(); ++n)
      for (const In &edge : in_[n])
        result[edge.from].push_back(n);
    return result;
  }

  /// How many nodes wait for the completion of each.
  std::vector<std::uint32_t> fullSuccessorCounts() const {
    std::vector<std::uint32_t> counts(in_.size(), 0);
    for (const std::vector<In> &edges : in_)
      for (const In &edge : edges)
        counts[edge.from] += edge.kind == EdgeKind::Full;
    return counts;
  }

  /// One edge for each pair; a full one wins over a programmatic one.
  void unite(NodeIndex node) {
    std::vector<In> &edges = in_[node];
    std::sort(edges.begin(), edges.end(),
              [](const In &a, const In &b) { return std::tuple(a.from, a.kind) < std::tuple(b.from, b.kind); });
    edges.erase(std::unique(edges.begin(), edges.end(), [](const In &a, const In &b) { return a.from == b.from; }),
                edges.end());
  }

private:
  std::vector<std::vector<In>> in_;
};

/// Discards do nothing here, and advice has no meaning: what came before them comes before what came after them.
void bypass(const Description &planned, EdgeSet &edges) {
  const auto isBypassed = [&](NodeIndex n) {
    return planned.nodes[n].kind == NodeKind::Discard || planned.nodes[n].kind == NodeKind::Advise;
  };
  for (NodeIndex n = 0; n < edges.size(); ++n) {
    std::vector<EdgeSet::In> direct;
    for (const EdgeSet::In &edge : edges.into(n)) {
      if (!isBypassed(edge.from)) {
        direct.push_back(edge);
        continue;
      }
      // Its own in-edges no longer name bypassed nodes: they were handled before.
      for (const EdgeSet::In &earlier : edges.into(edge.from))
        direct.push_back({earlier.from, EdgeKind::Full});
    }
    edges.into(n) = std::move(direct);
    edges.unite(n);
  }
}

/// Joins transfers that follow one another in their lane, move neighbouring bytes, wait for nothing more and are waited
/// for by the same nodes: one copy is then as good as two and one overhead less.
class Joiner {
public:
  Joiner(Description &step, EdgeSet &edges, const HostedChains &hosted)
      : step_(step), edges_(edges), hosted_(hosted), joinedTo_(step.nodes.size()), inRows_(step.nodes.size(), false) {
    for (NodeIndex n = 0; n < joinedTo_.size(); ++n)
      joinedTo_[n] = n;
    const std::vector<std::uint32_t> counts = edges_.fullSuccessorCounts();
    std::vector<NodeIndex> full;
    for (NodeIndex n = 0; n < edges_.size(); ++n) {
      full.clear();
      for (const EdgeSet::In &edge : edges_.into(n))
        if (edge.kind == EdgeKind::Full)
          full.push_back(edge.from);
      order_.append(full, counts, laneOf(step.nodes[n]));
    }
    successors_ = edges_.successors();
  }

  /// Returns, for every node, the node it has become part of: itself for most.
  std::vector<NodeIndex> run() {
    std::optional<NodeIndex> lastUp, lastDown;
    for (NodeIndex n = 0; n < step_.nodes.size(); ++n) {
      if (!isTransfer(step_.nodes[n]))
        continue;
      std::optional<NodeIndex> &last = movesUp(step_.nodes[n].kind) ? lastUp : lastDown;
      if (last && step_.nodes[n].joined)
        inRows_[*last] = inRows_[n] = true;
      last = n;
    }
    lastUp.reset();
    lastDown.reset();
    for (NodeIndex n = 0; n < step_.nodes.size(); ++n) {
      if (!isTransfer(step_.nodes[n]))
        continue;
      std::optional<NodeIndex> &last = movesUp(step_.nodes[n].kind) ? lastUp : lastDown;
      if (last && !inRows_[*last] && !inRows_[n] && canJoin(*last, n))
        join(*last, n);
      last = n;
    }
    return std::move(joinedTo_);
  }

private:
  bool areNeighbours(const Node &a, const Node &b) const {
    return a.buffer == b.buffer && (a.range.end() == b.range.offset || b.range.end() == a.range.offset) &&
           hosted_.at(a.buffer, a.range.offset) == hosted_.at(b.buffer, b.range.offset);
  }

  /// `previous` is the last transfer before `next` in their lane, perhaps part of a joined one already.
  bool canJoin(NodeIndex previous, NodeIndex next) const {
    const NodeIndex head = joinedTo_[previous];
    if (!areNeighbours(step_.nodes[head], step_.nodes[next]))
      return false;
    for (const EdgeSet::In &edge : edges_.into(next))
      if (joinedTo_[edge.from] != head && !order_.completesBefore(edge.from, head))
        return false;
    for (NodeIndex member = head; member <= previous; ++member) {
      if (joinedTo_[member] != head)
        continue;
      for (NodeIndex waiting : successors_[member])
        if (waiting != next && joinedTo_[waiting] != head && !order_.completesBefore(next, waiting))
          return false;
    }
    return true;
  }

  void join(NodeIndex previous, NodeIndex next) {
    const NodeIndex head = joinedTo_[previous];
    Range &range = step_.nodes[head].range;
    const Range &other = step_.nodes[next].range;
    range = {std::min(range.offset, other.offset), range.size + other.size};
    joinedTo_[next] = head;
  }

  Description &step_;
  EdgeSet &edges_;
  const HostedChains &hosted_;
  Order order_;
  std::vector<std::vector<NodeIndex>> successors_;
  std::vector<NodeIndex> joinedTo_;
  std::vector<bool> inRows_; ///< of a copy that the planner has joined already
};

void redirect(EdgeSet &edges, const std::vector<NodeIndex> &joinedTo) {
  for (NodeIndex n = 0; n < edges.size(); ++n)
    if (joinedTo[n] != n)
      for (const EdgeSet::In &edge : edges.into(n))
        edges.into(joinedTo[n]).push_back(edge);
  for (NodeIndex n = 0; n < edges.size(); ++n) {
    for (EdgeSet::In &edge : edges.into(n))
      edge.from = joinedTo[edge.from];
    // What a joined transfer waited for either came before its head already, or was part of it.
    std::erase_if(edges.into(n), [&](const EdgeSet::In &edge) { return edge.from >= n; });
    edges.unite(n);
  }
}

/// Leaves out edges that end or begin at an added node, or stand for a discard, and that other paths imply.
void reduce(const Description &step, const std::vector<NodeIndex> &joinedTo, const EdgeSet &before, EdgeSet &edges) {
  const auto mustStay = [&](NodeIndex to, const EdgeSet::In &edge) {
    if (!isCaptured(step.nodes[to]) || !isCaptured(step.nodes[edge.from]))
      return false;
    return std::any_of(before.into(to).begin(), before.into(to).end(),
                       [&](const EdgeSet::In &old) { return old.from == edge.from; });
  };
  const std::vector<std::uint32_t> counts = edges.fullSuccessorCounts();
  Order order;
  std::vector<NodeIndex> full;
  for (NodeIndex n = 0; n < edges.size(); ++n) {
    full.clear();
    if (joinedTo[n] != n)
      edges.into(n).clear();
    std::vector<EdgeSet::In> kept, candidates;
    for (const EdgeSet::In &edge : edges.into(n)) {
      if (!mustStay(n, edge)) {
        candidates.push_back(edge);
        continue;
      }
      kept.push_back(edge);
      if (edge.kind == EdgeKind::Full)
        full.push_back(edge.from);
    }
    // United edges are ascending; the latest first implies most.
    for (auto edge = candidates.rbegin(); edge != candidates.rend(); ++edge) {
      if (std::any_of(full.begin(), full.end(),
                      [&](NodeIndex p) { return p == edge->from || order.completesBefore(edge->from, p); }))
        continue;
      full.push_back(edge->from);
      kept.push_back(*edge);
    }
    edges.into(n) = std::move(kept);
    order.append(full, counts, laneOf(step.nodes[n]));
  }
}

/// Gives a step that copies the shape of a few long chains, for the driver runs every chain that it finds on a stream
/// of its own, and the more streams, the slower the copies (docs/results/probes.md). The captured nodes wait for
/// completion only, by no more edges than needed; every copy waits for the one before it in its direction, by an edge
/// of its own.
void straighten(const Description &step, const std::vector<NodeIndex> &joinedTo, EdgeSet &edges) {
  const auto isCopied = [&](NodeIndex n) { return isTransfer(step.nodes[n]) && joinedTo[n] == n; };
  bool copies = false;
  std::vector<NodeIndex> position(edges.size(), 0); // of the captured nodes among themselves
  std::vector<std::uint32_t> counts;
  for (NodeIndex n = 0; n < edges.size(); ++n) {
    copies = copies || isCopied(n);
    if (!isCaptured(step.nodes[n]))
      continue;
    position[n] = static_cast<NodeIndex>(counts.size());
    counts.push_back(0);
    for (const EdgeSet::In &edge : edges.into(n))
      if (isCaptured(step.nodes[edge.from]))
        ++counts[position[edge.from]];
  }
  if (!copies)
    return;
  // Of the captured nodes alone: their chain must not be broken where it leads over a copy as well.
  Order order;
  std::vector<NodeIndex> full;
  std::optional<NodeIndex> lastUp, lastDown;
  for (NodeIndex n = 0; n < edges.size(); ++n) {
    std::vector<EdgeSet::In> &into = edges.into(n);
    if (isCopied(n)) {
      std::optional<NodeIndex> &last = movesUp(step.nodes[n].kind) ? lastUp : lastDown;
      if (last)
        into.push_back({*last, EdgeKind::Full});
      last = n;
      edges.unite(n);
    }
    if (!isCaptured(step.nodes[n]))
      continue;
    full.clear();
    std::vector<EdgeSet::In> kept;
    std::sort(into.begin(), into.end(), [](const auto &a, const auto &b) { return a.from > b.from; });
    for (const EdgeSet::In &edge : into) {
      const bool captured = isCaptured(step.nodes[edge.from]);
      const NodeIndex from = position[edge.from];
      if (captured &&
          std::any_of(full.begin(), full.end(), [&](NodeIndex p) { return order.completesBefore(from, p); }))
        continue;
      kept.push_back({edge.from, EdgeKind::Full});
      if (captured)
        full.push_back(from);
    }
    into = std::move(kept);
    order.append(full, counts);
  }
}

/// The step with several transfers, one after the other, for each one of pages of which only some are hosted at another
/// address: a copy has one end in host memory.
Description cutWhereHosted(const Description &planned, const HostedChains &hosted) {
  return withNodesCut(planned, [&](const Node &node) {
    if (!isTransfer(node))
      return std::vector{node};
    std::vector<Node> parts;
    const std::vector<Range> ranges = hosted.alike(node.buffer, node.range);
    for (const Range &range : ranges) {
      Node &part = parts.emplace_back(node);
      part.range = range;
      part.joined = node.joined && ranges.size() == 1;
    }
    return parts;
  });
}

/// Writes what is left: without bypassed and joined nodes, transfers as copies.
Description write(const Description &step, const std::vector<NodeIndex> &joinedTo, const EdgeSet &edges,
                  const HostedChains &hosted) {
  Description lowered;
  lowered.name = step.name;
  lowered.stage = Stage::LoweredVirtual;
  lowered.pageBytes = step.pageBytes;
  lowered.budgetBytes = step.budgetBytes;
  lowered.buffers = step.buffers;
  const HostPlaces places(step);
  lowered.hostBytes = places.bytes();

  std::vector<NodeIndex> index(step.nodes.size());
  for (NodeIndex n = 0; n < step.nodes.size(); ++n) {
    const Node &node = step.nodes[n];
    if (node.kind == NodeKind::Discard || node.kind == NodeKind::Advise || joinedTo[n] != n)
      continue;
    index[n] = static_cast<NodeIndex>(lowered.nodes.size());
    lowered.nodes.push_back(node);
    if (!isTransfer(node))
      continue;
    Node &copy = lowered.nodes.back();
    copy.kind = movesUp(node.kind) ? NodeKind::CopyToDevice : NodeKind::CopyToHost;
    if (hosted.at(node.buffer, node.range.offset) == noBuffer)
      copy.hostOffset = places.placeOf(node.buffer, node.range.offset);
  }
  for (NodeIndex n = 0; n < step.nodes.size(); ++n) {
    const NodeKind kind = step.nodes[n].kind;
    if (kind == NodeKind::Discard || kind == NodeKind::Advise || joinedTo[n] != n)
      continue;
    for (const EdgeSet::In &edge : edges.into(n))
      lowered.edges.push_back({index[edge.from], index[n], edge.kind});
  }
  std::sort(lowered.edges.begin(), lowered.edges.end(),
            [](const Edge &a, const Edge &b) { return std::tuple(a.from, a.to) < std::tuple(b.from, b.to); });
  keepPossibleRows(lowered);
  return lowered;
}

} // namespace

Description lowerVirtual(const Description &planned) {
  assert(planned.stage == Stage::Planned && "copies are made of a plan");
  const HostedChains hosted(planned.buffers);
  const Description cut = cutWhereHosted(planned, hosted);
  Description step = cut;
  const EdgeSet original(cut);
  EdgeSet edges(cut);
  bypass(cut, edges);
  const std::vector<NodeIndex> joinedTo = Joiner(step, edges, hosted).run();
  redirect(edges, joinedTo);
  reduce(step, joinedTo, original, edges);
  straighten(step, joinedTo, edges);
  return write(step, joinedTo, edges, hosted);
}

} // namespace pumpgraph
