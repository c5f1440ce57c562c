// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Bound.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/PieceHistory.h"
#include "passes/analysis/WindowSearch.h"
#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

// docs/design/cost-model.md derives what is computed here and why it is sound.

namespace pumpgraph {

namespace {

/// A search is quadratic in the number of cuts, and more than this make the bound hardly better.
constexpr std::size_t fineCuts = 2048;
constexpr std::size_t coarseCuts = 384;
/// From how many points around the step a coarse search begins.
constexpr std::size_t searchStarts = 16;
/// Any number of bytes may be hosted.
constexpr std::uint64_t anyBytes = std::numeric_limits<std::uint64_t>::max();
/// How many replays in a row the last search looks at, where that many make no more cuts than a fine search has.
constexpr std::size_t mostRounds = 16;

/// Earliest end of every node when nothing is ever waited for.
std::vector<double> earliestEnds(const std::vector<double> &nodesUs, const CapturedGraph &graph) {
  std::vector<double> ends(graph.nodes.size(), 0);
  for (NodeIndex n = 0; n < graph.nodes.size(); ++n) {
    for (NodeIndex before : graph.predecessors[n])
      ends[n] = std::max(ends[n], ends[before]);
    ends[n] += nodesUs[n];
  }
  return ends;
}

double latestEnd(const std::vector<double> &endsUs) {
  return endsUs.empty() ? 0 : *std::max_element(endsUs.begin(), endsUs.end());
}

/// How much of the pages that a use reaches in host memory counts as moved by it. All, unless it was measured to take
/// less time than the link needs for them beside the copies that go on meanwhile.
double reachedShare(const Use &use, const Machine &machine) {
  return std::min(1.0, static_cast<double>(use.slowdown) / slowdownOfCopies(machine));
}

/// How long the link takes for what the node uses and the frames cannot hold: each byte goes the way, or the ways, that
/// the node reads or writes it, and those are chosen that together take least. All count as that of which least is
/// reached.
double leastHostedUs(const Timeline &timeline, NodeIndex node, double privateBytes, const Machine &machine) {
  double readBytes = 0, writtenBytes = 0, updatedBytes = 0, share = 1;
  for (std::uint32_t position : timeline.usesAt(node)) {
    const Use &use = timeline.use(position);
    share = std::min(share, reachedShare(use, machine));
    (use.readsOld && use.writes ? updatedBytes
     : use.writes               ? writtenBytes
                                : readBytes) += static_cast<double>(timeline.piece(use.piece).bytes);
  }
  const double excess = readBytes + writtenBytes + updatedBytes - privateBytes;
  if (excess <= 0)
    return 0;
  const double upRate = machine.upBytesPerSecond / 1e6, downRate = machine.downBytesPerSecond / 1e6;
  // One way alone is cheaper than both, and a byte costs least in the direction that has less to do.
  const double oneWay = std::min(excess, readBytes + writtenBytes);
  const double up = std::clamp(oneWay * upRate / (upRate + downRate), oneWay - std::min(oneWay, writtenBytes),
                               std::min(oneWay, readBytes));
  const double upUs = (up + excess - oneWay) / upRate, downUs = (excess - up) / downRate;
  return share * togetherUs(upUs, downUs, interference(machine));
}

/// Nodes that every path passes: everything before one has ended when it starts, and nothing after it starts before it
/// has ended. The last node of all is there whether or not it is such a node.
std::vector<NodeIndex> findCuts(const CapturedGraph &graph) {
  const std::size_t count = graph.nodes.size();
  // A node is passed by all paths if it is the only sink up to itself and the only source from itself on.
  std::vector<std::size_t> firstSuccessor(count, count);
  std::vector<std::int64_t> lastPredecessor(count, -1);
  for (NodeIndex v = 0; v < count; ++v)
    for (NodeIndex before : graph.predecessors[v]) {
      firstSuccessor[before] = std::min<std::size_t>(firstSuccessor[before], v);
      lastPredecessor[v] = std::max(lastPredecessor[v], std::int64_t{before});
    }
  std::vector<std::int64_t> laterPredecessor(count, static_cast<std::int64_t>(count)); // least over all later nodes
  for (std::size_t c = count; c-- > 1;)
    laterPredecessor[c - 1] = std::min(laterPredecessor[c], lastPredecessor[c]);
  std::vector<NodeIndex> cuts;
  std::size_t earlierSuccessor = 0; // greatest over all earlier nodes
  for (NodeIndex c = 0; c < count; ++c) {
    if ((earlierSuccessor <= c && laterPredecessor[c] >= static_cast<std::int64_t>(c)) || c + 1 == count)
      cuts.push_back(c);
    earlierSuccessor = std::max(earlierSuccessor, firstSuccessor[c]);
  }
  return cuts;
}

/// A segment that ends with each cut; where nodes hold their operands, each cut is one of its own.
std::vector<Segment> segmentsOf(const std::vector<NodeIndex> &cuts, bool holdsOperands, bool lastIsCut) {
  std::vector<Segment> segments;
  for (const NodeIndex cut : cuts) {
    const bool isCut = lastIsCut || cut != cuts.back();
    if (holdsOperands)
      segments.push_back({isCut ? std::int64_t{cut} - 1 : std::int64_t{cut}});
    segments.push_back({cut, holdsOperands && isCut});
  }
  return segments;
}

/// How long each segment takes when nothing is waited for.
std::vector<double> segmentTimes(const std::vector<double> &endsUs, const std::vector<Segment> &segments) {
  std::vector<double> times;
  double reached = 0, begin = 0;
  std::int64_t n = 0;
  for (const Segment &segment : segments) {
    for (; n <= segment.last; ++n)
      reached = std::max(reached, endsUs[static_cast<std::size_t>(n)]);
    times.push_back(reached - begin);
    begin = reached;
  }
  return times;
}

/// Keeps about `most` of the cuts, the last among them. Any subset of the cuts gives a sound bound.
std::vector<NodeIndex> thinOut(const std::vector<NodeIndex> &cuts, std::size_t most) {
  if (cuts.size() <= most)
    return cuts;
  std::vector<NodeIndex> kept;
  for (std::size_t i = 1; i <= most; ++i)
    kept.push_back(cuts[i * cuts.size() / most - 1]);
  return kept;
}

/// Pages have one history wherever they are.
Timeline timelineOfAllPages(Description description) {
  for (Buffer &buffer : description.buffers)
    buffer.hosted.clear();
  return Timeline(description);
}

/// Everything that does not depend on where the search begins.
class BoundProblem {
public:
  BoundProblem(const Description &description, std::uint64_t budgetBytes, const Machine &machine, BoundKind kind,
               Backend backend, std::optional<std::uint64_t> mostHostedBytes, Repetitions repetitions)
      : description_(description), machine_(machine), kind_(kind), keepsHostCopy_(keepHostCopies(description, backend)),
        graph_(description), timeline_(timelineOfAllPages(description)), cuts_(findCuts(graph_)) {
    const std::uint64_t frames = budgetBytes / description.pageBytes;
    const std::uint64_t privateFrames = frames - std::min(frames, timeline_.exclusivePages());
    privateBytes_ = static_cast<double>(privateFrames * description.pageBytes);
    // Plans for which an operand may be read from the host directly are the business of the other kind of bound, unless
    // there are no others.
    bool allFit = true;
    for (NodeIndex n = 0; n < timeline_.nodeCount(); ++n)
      allFit = allFit && timeline_.workingSetPages(n) <= privateFrames;
    const bool mayHold = kind == BoundKind::May && pumpgraph::hostedBytes(description) == 0;
    holdsOperands_ = mayHold && (mostHostedBytes ? *mostHostedBytes != anyBytes : allFit);
    hostedBytes_ = holdsOperands_ && mostHostedBytes ? static_cast<double>(*mostHostedBytes) : 0;
    for (std::size_t i = 0; i < timeline_.pieces().size(); ++i)
      shares_.add(holdsOperands_ ? 1 : leastReachedShare(static_cast<PieceIndex>(i)));

    prices_.assign(graph_.nodes.size(), RemakePrices::never);
    if (repetitions == Repetitions::Allowed)
      findPrices();
    std::vector<double> nodesUs;
    for (NodeIndex n : graph_.nodes)
      nodesUs.push_back(costUsOf(description.nodes[n]));
    endsUs_ = earliestEnds(nodesUs, graph_);
    inMemoryUs_ = latestEnd(endsUs_);
    if (kind != BoundKind::May || allFit || backend == Backend::ManagedUnknown)
      return;
    for (NodeIndex n = 0; n < graph_.nodes.size(); ++n)
      nodesUs[n] = std::max(nodesUs[n], leastHostedUs(timeline_, graph_.nodes[n], privateBytes_, machine));
    endsUs_ = earliestEnds(nodesUs, graph_);
  }

  Bound solve() const {
    if (cuts_.empty())
      return {};
    Bound best = search();
    best.inMemoryUs = inMemoryUs_;
    return best;
  }

private:
  void findPrices() {
    const RemakePrices prices(machine_);
    const bool inLine = cuts_.size() == graph_.nodes.size();
    for (NodeIndex n = 0; n < graph_.nodes.size(); ++n) {
      const Node &node = description_.nodes[graph_.nodes[n]];
      if (!node.isPure || !isRepeatable(node.kind) || std::ranges::any_of(node.accesses, [&](const Access &access) {
            const Buffer &buffer = description_.buffers[access.buffer];
            return !access.isAside && (reliableMay(access) & modeWrite) != 0 &&
                   (!buffer.isPrivate || buffer.liveIn || buffer.liveOut);
          }))
        continue;
      double written = 0;
      for (const std::uint32_t position : timeline_.usesAt(graph_.nodes[n]))
        if (const Use &use = timeline_.use(position); use.writes)
          written += static_cast<double>(timeline_.piece(use.piece).bytes);
      prices_[n] = inLine && written > 0 ? prices.of(costUsOf(node) / written) : RemakePrices::free();
    }
  }

  /// Where a piece may be hosted at all times: no use moves less of it.
  double leastReachedShare(PieceIndex piece) const {
    double share = 1;
    for (const Use &use : timeline_.usesOf(piece))
      share = std::min(share, reachedShare(use, machine_));
    return share;
  }

  /// The best of searches over coarse windows that begin at different points, then a fine one from the best point,
  /// through several replays where they are short.
  Bound search() const {
    const Segmentation coarse(*this, thinOut(cuts_, coarseCuts));
    const std::size_t count = coarse.cuts.size();
    NodeIndex bestCut = cuts_.back(); // the step boundary
    Bound best = coarse.search(0, 1);
    const std::size_t starts = std::min(count, searchStarts);
    for (std::size_t i = 1; i < starts; ++i) {
      const std::size_t first = i * count / starts;
      const Bound bound = coarse.search(first, 1);
      if (bound.totalUs <= best.totalUs)
        continue;
      best = bound;
      bestCut = coarse.cuts[first - 1];
    }
    const Segmentation fine(*this, thinOut(cuts_, fineCuts));
    const auto at = std::lower_bound(fine.cuts.begin(), fine.cuts.end(), bestCut);
    const std::size_t first = static_cast<std::size_t>(at - fine.cuts.begin()) + 1;
    const std::size_t rounds = std::clamp<std::size_t>(fineCuts / fine.cuts.size(), 1, mostRounds);
    const Bound bound = fine.search(first % fine.cuts.size(), rounds);
    return bound.totalUs >= best.totalUs ? bound : best;
  }

  std::size_t segmentsPerCut() const { return holdsOperands_ ? 2 : 1; }

  struct Segmentation {
    Segmentation(const BoundProblem &problem, std::vector<NodeIndex> segmentCuts)
        : problem(problem), cuts(std::move(segmentCuts)),
          segments(segmentsOf(cuts, problem.holdsOperands_, problem.graph_.hasOneSink())),
          times(segmentTimes(problem.endsUs_, segments)),
          histories(pieceHistories({problem.description_, problem.kind_, problem.holdsOperands_, problem.keepsHostCopy_,
                                    problem.graph_, problem.timeline_, problem.shares_, problem.prices_},
                                   segments)) {}

    /// From right after the cut before `firstCut`.
    Bound search(std::size_t firstCut, std::size_t rounds) const {
      return searchWindows({times, firstCut * problem.segmentsPerCut(), rounds, problem.privateBytes_,
                            problem.hostedBytes_, problem.machine_},
                           histories);
    }

    const BoundProblem &problem;
    std::vector<NodeIndex> cuts;
    std::vector<Segment> segments;
    std::vector<double> times;
    std::vector<PieceHistory> histories;
  };

  const Description &description_;
  const Machine &machine_;
  BoundKind kind_;
  std::vector<bool> keepsHostCopy_;
  CapturedGraph graph_;
  Timeline timeline_;
  IndexedVector<PieceIndex, double> shares_; ///< of each piece, how much counts
  std::vector<std::size_t> prices_;          ///< by captured node
  std::vector<double> endsUs_;               ///< with what nodes must read and write of hosted pages
  double inMemoryUs_ = 0;
  std::vector<NodeIndex> cuts_;
  double privateBytes_ = 0;
  double hostedBytes_ = 0; ///< what those that hold their operands may have in host memory all the same
  bool holdsOperands_ = false;
};

} // namespace

Bound bound(const Description &description, std::uint64_t budgetBytes, const Machine &machine, BoundKind kind,
            Backend backend, std::optional<std::uint64_t> mostHostedBytes, Repetitions repetitions) {
  assert(budgetBytes > 0 && "a bound needs a budget");
  assert(machine.hostedShare + machine.besideHostedShare <= 1 && "the link carries no more than it can");
  const Machine best = atItsBest(machine);
  const bool nothingDies = kind == BoundKind::May && backend == Backend::ManagedUnknown &&
                           timelineOfAllPages(description).peakPages() > budgetBytes / description.pageBytes;
  std::optional<Description> undying;
  const Description &known = nothingDies ? undying.emplace(withNothingDead(description)) : description;
  const auto limit = [&](std::optional<std::uint64_t> most) {
    return BoundProblem(known, budgetBytes, best, kind, backend, most, repetitions).solve();
  };
  if (!mostHostedBytes || kind == BoundKind::Must)
    return limit(std::nullopt);
  const Bound any = limit(anyBytes), few = limit(mostHostedBytes);
  return few.totalUs > any.totalUs ? few : any;
}

} // namespace pumpgraph
