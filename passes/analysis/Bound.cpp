// SPDX-License-Identifier: Apache-2.0
#include "passes/analysis/Bound.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/analysis/Order.h"
#include "passes/analysis/Timeline.h"
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

/// What it costs to make a byte again, microseconds, rounded down: by powers of 2, of what the link takes for it.
class RemakePrices {
public:
  static constexpr std::size_t count = 12;
  static constexpr std::size_t never = count; ///< it cannot be made again

  explicit RemakePrices(const Machine &machine) : linkUsPerByte_(1e6 / machine.upBytesPerSecond) {}

  static std::size_t free() { return 0; }
  std::size_t of(double usPerByte) const {
    std::size_t price = 0;
    while (price + 1 < count && us(price + 1) <= usPerByte)
      ++price;
    return price;
  }
  double us(std::size_t price) const {
    constexpr int first = -8; // a price below that of a 256th of the link's is none
    return price == 0 ? 0 : std::ldexp(linkUsPerByte_, first + static_cast<int>(price) - 1);
  }

private:
  double linkUsPerByte_;
};

/// In a captured step what runs again is given, like all else; in a planned one the plan has chosen it.
bool isCaptured(const Description &step, const Node &node) {
  return !isAdded(node.kind) && (node.kind != NodeKind::Rematerialize || step.stage == Stage::Captured);
}

/// The captured nodes alone, in their order, and their edges among each other. A programmatic edge counts like a full
/// one: node times are those of the step as it runs, overlap included.
struct CapturedGraph {
  std::vector<NodeIndex> nodes;                     ///< position in the description
  std::vector<std::vector<NodeIndex>> predecessors; ///< by captured node

  explicit CapturedGraph(const Description &description) {
    std::vector<NodeIndex> compact(description.nodes.size(), 0);
    for (NodeIndex n = 0; n < description.nodes.size(); ++n) {
      if (!isCaptured(description, description.nodes[n]))
        continue;
      compact[n] = static_cast<NodeIndex>(nodes.size());
      nodes.push_back(n);
    }
    predecessors.resize(nodes.size());
    for (const Edge &edge : description.edges)
      if (isCaptured(description, description.nodes[edge.from]) && isCaptured(description, description.nodes[edge.to]))
        predecessors[compact[edge.to]].push_back(compact[edge.from]);
    std::vector<bool> isSink(nodes.size(), true);
    for (const std::vector<NodeIndex> &before : predecessors)
      for (NodeIndex n : before)
        isSink[n] = false;
    sinks_ = std::count(isSink.begin(), isSink.end(), true);
  }

  /// Whether the last node ends after all others.
  bool hasOneSink() const { return sinks_ == 1; }

  Order order() const {
    Order order;
    const std::vector<std::uint32_t> counts = successorCounts(predecessors);
    for (const std::vector<NodeIndex> &before : predecessors)
      order.append(before, counts);
    return order;
  }

private:
  std::ptrdiff_t sinks_ = 0;
};

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

/// What one node does to one piece, as far as this kind of bound believes it.
struct Touch {
  NodeIndex node = 0;
  std::uint64_t neededBytes = 0;  ///< of the old value, on the device before the node runs
  std::uint64_t writtenBytes = 0; ///< certainly new afterwards
  bool mayReplace = false;        ///< the old value may be gone afterwards without having been read
  bool isOnDevice = false;        ///< certainly afterwards, without a host copy
  bool writes = false;
  bool finds = false;     ///< some byte that it does not certainly overwrite
  bool renewsAll = false; ///< every byte of the piece is of the node's version afterwards
};

/// A run of nodes; both ends are points at which windows may begin and end.
struct Segment {
  std::int64_t last = -1; ///< captured node; the one before the segment's if it has none
  /// One node by itself, with all it uses on the device from its start to its end: what it needs has come before the
  /// segment begins, and what it writes leaves after that.
  bool isAlone = false;
};

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

/// What one segment does to one piece.
struct Visit {
  std::uint32_t segment = 0;
  std::uint64_t neededBytes = 0; ///< of the value from before the segment, in every order of its nodes
  std::uint64_t writtenBytes = 0;
  bool writesAll = false;
  bool isAlone = false;                    ///< as the segment
  bool isOnDevice = false;                 ///< certainly at some time, without a host copy
  bool writes = false;                     ///< perhaps
  bool finds = false;                      ///< as the first node
  bool renewsAll = false;                  ///< some node does
  std::size_t price = RemakePrices::never; ///< the least of what it may write
};

struct PieceHistory {
  std::uint64_t bytes = 0;
  bool liveIn = false;
  bool liveOut = false;
  std::vector<Visit> visits; ///< those that need or may replace the value, by segment
};

/// Builds the history of every piece, segment by segment.
class Histories {
public:
  /// `holdsOperands`: whether all that a node uses is on the device while it runs. `keepsHostCopy`, by buffer: whether
  /// a host copy stays good while the page is on the device. `shares`: how much of each piece counts. `prices`, by
  /// captured node: what a byte that it has written costs to be made again.
  Histories(const Description &description, BoundKind kind, bool holdsOperands, const std::vector<bool> &keepsHostCopy,
            const CapturedGraph &graph, const Timeline &timeline, const IndexedVector<PieceIndex, double> &shares,
            const std::vector<std::size_t> &prices, const std::vector<Segment> &segments)
      : description_(description), kind_(kind), holdsOperands_(holdsOperands), keepsHostCopy_(keepsHostCopy),
        graph_(graph), segments_(segments), timeline_(timeline), shares_(shares), prices_(prices),
        order_(graph.order()) {}

  std::vector<PieceHistory> build() {
    std::vector<PieceHistory> histories;
    const std::vector<std::vector<Touch>> touches = collectTouches();
    histories.reserve(touches.size());
    for (std::size_t p = 0; p < touches.size(); ++p) {
      const Piece &piece = timeline_.piece(static_cast<PieceIndex>(p));
      PieceHistory history{bytesOf(static_cast<PieceIndex>(p)), piece.liveIn, piece.liveOut, {}};
      for (std::size_t begin = 0; begin < touches[p].size();) {
        const std::uint32_t segment = segmentOf(touches[p][begin].node);
        std::size_t end = begin + 1;
        while (end < touches[p].size() && touches[p][end].node <= segments_[segment].last)
          ++end;
        history.visits.push_back(visitOf(segment, std::span(touches[p]).subspan(begin, end - begin), history.bytes));
        begin = end;
      }
      histories.push_back(std::move(history));
    }
    return histories;
  }

private:
  std::uint32_t segmentOf(NodeIndex node) const {
    const auto endsBefore = [](const Segment &segment, NodeIndex n) { return segment.last < std::int64_t{n}; };
    return static_cast<std::uint32_t>(std::lower_bound(segments_.begin(), segments_.end(), node, endsBefore) -
                                      segments_.begin());
  }

  std::vector<std::vector<Touch>> collectTouches() const {
    std::vector<std::vector<Touch>> touches(timeline_.pieces().size());
    for (NodeIndex n = 0; n < graph_.nodes.size(); ++n)
      for (std::uint32_t position : timeline_.usesAt(graph_.nodes[n])) {
        const Use &use = timeline_.use(position);
        Touch touch = kind_ == BoundKind::May ? mayTouch(n, use) : mustTouch(n, use);
        touch.finds = finds(use);
        touch.renewsAll = renewsAll(use);
        if (touch.neededBytes > 0 || touch.mayReplace || touch.writes)
          touches[static_cast<std::size_t>(use.piece)].push_back(touch);
      }
    return touches;
  }

  /// Of so many bytes of a piece, those that count.
  std::uint64_t counted(PieceIndex index, std::uint64_t bytes) const {
    return shares_[index] < 1 ? static_cast<std::uint64_t>(shares_[index] * static_cast<double>(bytes)) : bytes;
  }
  std::uint64_t bytesOf(PieceIndex index) const { return counted(index, timeline_.piece(index).bytes); }

  /// As the planner and the checker see it: whole pages, and whatever may happen counts.
  Touch mayTouch(NodeIndex node, const Use &use) const {
    const std::uint64_t bytes = bytesOf(use.piece);
    return {node,
            use.readsOld ? bytes : 0,
            use.writes ? bytes : 0,
            use.writes && !use.readsOld,
            holdsOperands_ && !keepsHostCopy_[timeline_.piece(use.piece).buffer],
            use.writes};
  }

  bool finds(const Use &use) const {
    const Piece &piece = timeline_.piece(use.piece);
    const Range whole{piece.firstPage * description_.pageBytes, piece.bytes};
    return std::ranges::any_of(description_.nodes[use.node].accesses, [&](const Access &access) {
      return access.buffer == piece.buffer && reliableMust(access) != modeWrite && access.range.offset < whole.end() &&
             whole.offset < access.range.end();
    });
  }

  /// Whether one access of the node covers the piece, and all that it covers counts as written. What another node has
  /// left there can be made again no more.
  bool renewsAll(const Use &use) const {
    const Piece &piece = timeline_.piece(use.piece);
    const Range whole{piece.firstPage * description_.pageBytes, piece.bytes};
    return std::ranges::any_of(description_.nodes[use.node].accesses, [&](const Access &access) {
      const bool isBelieved = kind_ == BoundKind::May || access.evidence != Evidence::Allocated;
      const std::uint8_t mode = kind_ == BoundKind::May ? reliableMay(access) : reliableMust(access);
      return access.buffer == piece.buffer && isBelieved && (mode & modeWrite) != 0 &&
             access.range.offset <= whole.offset && whole.end() <= access.range.end();
    });
  }

  /// What certainly happens: the bytes that must be read or written, and any possible write may replace the value.
  Touch mustTouch(NodeIndex node, const Use &use) const {
    const Piece &piece = timeline_.piece(use.piece);
    const std::uint64_t begin = piece.firstPage * description_.pageBytes, end = begin + piece.bytes;
    Touch touch{node, 0, 0, use.writes, false, use.writes};
    for (const Access &access : description_.nodes[use.node].accesses) {
      if (access.buffer != piece.buffer || access.range.offset >= end || access.range.end() <= begin)
        continue;
      const std::uint64_t bytes = std::min(end, access.range.end()) - std::max(begin, access.range.offset);
      if (reliableMust(access) & modeRead)
        touch.neededBytes = std::max(touch.neededBytes, bytes);
      if ((reliableMust(access) & modeWrite) != 0 && access.evidence != Evidence::Allocated) // for that writes less
        touch.writtenBytes = std::max(touch.writtenBytes, bytes);
    }
    touch.neededBytes = counted(use.piece, touch.neededBytes);
    touch.writtenBytes = counted(use.piece, touch.writtenBytes);
    return touch;
  }

  /// A need counts if its node comes, in every order, before every other node of the segment that may replace the
  /// value.
  Visit visitOf(std::uint32_t segment, std::span<const Touch> touches, std::uint64_t pieceBytes) const {
    Visit visit{segment, touches.front().neededBytes, 0, false, segments_[segment].isAlone};
    visit.finds = touches.front().finds;
    for (const Touch &touch : touches) {
      visit.writes = visit.writes || touch.writes;
      visit.renewsAll = visit.renewsAll || touch.renewsAll;
      if (touch.writes)
        visit.price = std::min(visit.price, prices_[touch.node]);
      visit.writtenBytes = std::max(visit.writtenBytes, touch.writtenBytes);
      visit.isOnDevice = visit.isOnDevice || touch.isOnDevice;
      const bool isOther = touch.node != touches.front().node;
      if (visit.neededBytes > 0 && isOther && touch.mayReplace &&
          !order_.completesBefore(touches.front().node, touch.node))
        visit.neededBytes = 0;
    }
    visit.writesAll = visit.writtenBytes >= pieceBytes;
    return visit;
  }

  const Description &description_;
  BoundKind kind_;
  bool holdsOperands_;
  const std::vector<bool> &keepsHostCopy_;
  const CapturedGraph &graph_;
  const std::vector<Segment> &segments_;
  const Timeline &timeline_;
  const IndexedVector<PieceIndex, double> &shares_;
  const std::vector<std::size_t> &prices_; ///< by captured node
  Order order_;                            ///< of captured nodes
};

/// Bytes that count in every window (i, j] with firstAfter <= i < at <= j: `at` is the first visit after `firstAfter`.
struct UpDemand {
  std::size_t firstAfter, at;
  std::uint64_t bytes;
  bool isHeld;       ///< on the device at `firstAfter` anyhow
  std::size_t price; ///< for which they may be made again
};

/// Bytes that count in every window (i, j] with i < before and from <= j < to: they leave after `i`, for until then
/// they are not written, or in use.
struct DownDemand {
  std::size_t before, from, to;
  std::uint64_t bytes;
  bool isHeld;       ///< on the device at `from` anyhow
  bool isHeldAtLast; ///< on the device at `to` - 1 anyhow
};

/// The dynamic programme over windows (i, j] of cut points, 0 <= i < j <= last. Point 0 is the end of some segment, or
/// the start of the step; from there the points go around once, or through several replays, whose boundaries are among
/// them.
class WindowSearch {
public:
  /// `segmentsUs`: how long each segment takes in memory. The search begins before segment `first`. Where nodes hold
  /// their operands, all but `hostedBytes` of all of them.
  WindowSearch(const std::vector<double> &segmentsUs, std::size_t first, std::size_t rounds, double budgetBytes,
               double hostedBytes, const Machine &machine)
      : round_(segmentsUs.size()), rounds_(rounds), last_(round_ * rounds), first_(first), pointsUs_(last_ + 1, 0),
        budgetBytes_(budgetBytes), hostedBytes_(hostedBytes), upUsPerByte_(1e6 / machine.upBytesPerSecond),
        downUsPerByte_(1e6 / machine.downBytesPerSecond), prices_(machine), interference_(interference(machine)),
        upAt_(last_ + 1), downFrom_(last_ + 1), downTo_(last_ + 2), heldBytes_(last_ + 1, 0) {
    for (std::size_t i = 0; i < last_; ++i)
      pointsUs_[i + 1] = pointsUs_[i] + segmentsUs[(first + i) % round_];
  }

  void add(const PieceHistory &history) {
    const std::vector<Visit> &visits = history.visits;
    if (visits.empty())
      return;
    const auto afterStart =
        std::find_if(visits.begin(), visits.end(), [&](const Visit &visit) { return visit.segment >= first_; });
    const std::size_t start = static_cast<std::size_t>(afterStart - visits.begin()) % visits.size();
    std::vector<bool> hasValue(visits.size());
    bool written = history.liveIn;
    const std::vector<std::size_t> prices = pricesOf(visits);
    for (std::size_t k = 0; k < visits.size(); ++k) {
      hasValue[k] = written;
      written |= visits[k].writesAll;
      anyRemade_ = anyRemade_ || prices[k] != RemakePrices::never;
    }
    Written last;
    const std::size_t count = visits.size() * rounds_;
    // Where the search begins, what was used right before is on the device, unless that is another replay's.
    const Visit &before = visits[(start + visits.size() - 1) % visits.size()];
    bool isHeld = first_ > 0 && before.segment + 1 == first_ && before.isAlone;
    std::size_t previous = 0;
    if (isHeld)
      heldBytes_[0] += static_cast<double>(history.bytes);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t k = (start + i) % visits.size();
      const std::size_t round = i / visits.size();
      if (k == 0 && !history.liveIn)
        last = Written(); // another replay's value
      const std::size_t point = pointOf(visits[k], round);
      const std::size_t neededAt = point - (visits[k].isAlone ? 1 : 0);
      if (hasValue[k] && visits[k].neededBytes > 0 && neededAt > previous)
        upAt_[neededAt].push_back({previous, neededAt, visits[k].neededBytes, isHeld, prices[k]});
      const std::size_t leavesIfBefore = point + (visits[k].isAlone ? 1 : 0);
      if (visits[k].isOnDevice && hasValue[k])
        last = {leavesIfBefore, history.bytes};
      else if (visits[k].writtenBytes > 0)
        last = {leavesIfBefore, visits[k].writtenBytes};
      isHeld = visits[k].isAlone;
      if (isHeld)
        for (const std::size_t end : {point - 1, point})
          heldBytes_[end] += static_cast<double>(history.bytes);
      const std::size_t next =
          i + 1 < count ? pointOf(visits[(k + 1) % visits.size()], (i + 1) / visits.size()) : last_ + 1;
      addDownDemands(history, k, point, next, last, prices);
      previous = point;
    }
  }

  Bound solve() {
    Sums sums(last_ + 1);
    std::vector<Choice> choices(last_ + 1);
    for (std::size_t j = 1; j <= last_; ++j) {
      std::fill(sums.downHeld.begin(), sums.downHeld.end(), 0.0);
      for (const UpDemand &demand : upAt_[j]) {
        const double bytes = static_cast<double>(demand.bytes);
        sums.up[demand.firstAfter] += bytes;
        sums.up[demand.at] -= bytes;
        if (demand.price != RemakePrices::never) {
          sums.remade[demand.firstAfter][demand.price] += bytes;
          sums.remade[demand.at][demand.price] -= bytes;
        }
        sums.upHeld[demand.firstAfter] += demand.isHeld ? bytes : 0;
      }
      for (const DownDemand &demand : downTo_[j])
        sums.down[demand.before] -= static_cast<double>(demand.bytes);
      for (const DownDemand &demand : downFrom_[j]) {
        const double bytes = static_cast<double>(demand.bytes);
        sums.down[demand.before] += bytes;
        sums.downHeld[demand.before] += demand.isHeld ? bytes : 0;
      }
      for (const DownDemand &demand : downTo_[j + 1])
        sums.downHeld[demand.before] += demand.isHeldAtLast ? static_cast<double>(demand.bytes) : 0;
      choices[j] = bestWindowTo(j, choices, sums);
    }
    return describe(choices);
  }

private:
  enum class Limit { Compute, Up, Down, Both };
  struct Choice {
    double totalUs = 0; ///< of the best partition up to this point
    std::size_t begin = 0;
    double windowUs = 0;
    Limit limit = Limit::Compute;
  };

  using BytesByPrice = std::array<double, RemakePrices::count>;

  /// Byte sums for windows that end at one point.
  struct Sums {
    explicit Sums(std::size_t points)
        : up(points, 0), remade(points), upHeld(points, 0), down(points + 1, 0), downHeld(points + 1, 0) {}
    std::vector<double> up;           ///< differences over the windows' beginnings
    std::vector<BytesByPrice> remade; ///< likewise: of those, what may be made again
    std::vector<double> upHeld;       ///< by beginning: of those, what is on the device there anyhow
    std::vector<double> down;         ///< by `before`
    std::vector<double> downHeld;     ///< by `before`: of those, what is on the device at the end anyhow
  };

  struct Written {
    std::size_t before = 0; ///< it leaves in no window that begins here or later; 0: not since the search's start
    std::uint64_t bytes = 0;
  };

  /// What it costs, by visit, to make again what it finds; an earlier replay's cannot be. A node that finds nothing in
  /// particular, but does not overwrite all of a page, needs some value of the page: whatever is made there will do.
  static std::vector<std::size_t> pricesOf(const std::vector<Visit> &visits) {
    std::size_t any = RemakePrices::never;
    for (const Visit &visit : visits)
      any = std::min(any, visit.price);
    std::vector<std::size_t> prices;
    bool isRenewed = false; // since the step began
    std::size_t price = RemakePrices::never;
    for (const Visit &visit : visits) {
      prices.push_back(isRenewed && visit.finds ? price : any);
      isRenewed = isRenewed || visit.renewsAll;
      if (visit.writes)
        price = visit.renewsAll ? visit.price : std::min(price, visit.price);
    }
    return prices;
  }

  std::size_t pointOf(const Visit &visit, std::size_t round) const {
    return (visit.segment + round_ - first_) % round_ + 1 + round * round_;
  }
  /// The first end of a replay that is not before the point: where its last segment ends.
  std::size_t boundaryFrom(std::size_t point) const {
    const std::size_t boundary = round_ - first_;
    return point <= boundary ? boundary : boundary + (point - boundary + round_ - 1) / round_ * round_;
  }

  /// How much of what was written is certainly read by a later visit.
  static std::uint64_t overlap(const PieceHistory &history, std::uint64_t written, const Visit &later) {
    const std::uint64_t sum = written + later.neededBytes;
    return sum > history.bytes ? sum - history.bytes : 0;
  }

  /// What visit `k`, at `point`, leaves to be kept until the `next` one: within the step, or to the boundary and
  /// beyond it. Within the step, what may be made again is given up in place of leaving.
  void addDownDemands(const PieceHistory &history, std::size_t k, std::size_t point, std::size_t next,
                      const Written &written, const std::vector<std::size_t> &prices) {
    const std::vector<Visit> &visits = history.visits;
    if (k + 1 < visits.size()) {
      if (prices[k + 1] != RemakePrices::never)
        return;
      const std::uint64_t needed = overlap(history, written.bytes, visits[k + 1]);
      addDownDemand({written.before, point, next, needed, visits[k].isAlone, visits[k + 1].isAlone});
      return;
    }
    const std::size_t boundary = boundaryFrom(point);
    const bool crosses = boundary < last_; // else the next boundary ends the search
    if (history.liveOut)
      addDownDemand(
          {written.before, point, crosses ? boundary + 1 : last_ + 1, written.bytes, visits[k].isAlone, false});
    const bool ends = next <= last_; // within the search
    if (history.liveIn && crosses)
      addDownDemand({written.before, boundary + 1, next, overlap(history, written.bytes, visits.front()), false,
                     ends && visits.front().isAlone});
  }

  void addDownDemand(const DownDemand &demand) {
    if (demand.bytes == 0 || demand.before == 0 || demand.from >= demand.to)
      return;
    downFrom_[demand.from].push_back(demand);
    downTo_[demand.to].push_back(demand);
  }

  Choice bestWindowTo(std::size_t j, const std::vector<Choice> &choices, const Sums &sums) const {
    double upBytes = 0, downBytes = 0, downHeld = 0;
    BytesByPrice remade{};
    for (std::size_t w = 0; w <= j; ++w) {
      downBytes += sums.down[w];
      downHeld += sums.downHeld[w];
    }
    Choice best;
    best.totalUs = -1;
    for (std::size_t i = 0; i < j; ++i) {
      upBytes += sums.up[i];
      downBytes -= sums.down[i];
      downHeld -= sums.downHeld[i];
      const double roomAtBegin = roomBeside(heldBytes_[i] - sums.upHeld[i]);
      const double roomAtEnd = roomBeside(heldBytes_[j] - downHeld);
      const double comingBytes = std::max(0.0, upBytes - roomAtBegin - hostedBytes_);
      const double upUs = comingBytes * upUsPerByte_;
      const double downUs = std::max(0.0, downBytes - roomAtEnd - hostedBytes_) * downUsPerByte_;
      const double computeUs = pointsUs_[j] - pointsUs_[i];
      double windowUs = std::max(computeUs, togetherUs(upUs, downUs, interference_));
      if (anyRemade_) {
        for (std::size_t price = 0; price < remade.size(); ++price)
          remade[price] += sums.remade[i][price];
        windowUs = std::max(remakingUs(computeUs, comingBytes, remade), downUs);
      }
      if (choices[i].totalUs + windowUs > best.totalUs)
        best = {choices[i].totalUs + windowUs, i, windowUs, limitOf(computeUs, upUs, downUs)};
    }
    return best;
  }

  /// What a window takes in which bytes come or are made again, the cheapest first, whichever is sooner.
  double remakingUs(double computeUs, double comingBytes, const BytesByPrice &remade) const {
    double us = computeUs;
    for (std::size_t price = 0; price < remade.size() && comingBytes * upUsPerByte_ > us; ++price) {
      const double usPerByte = prices_.us(price);
      const double even = (comingBytes * upUsPerByte_ - us) / (usPerByte + upUsPerByte_);
      const double bytes = std::min(std::max(0.0, remade[price]), even);
      us += bytes * usPerByte;
      comingBytes -= bytes;
    }
    return std::max(us, comingBytes * upUsPerByte_);
  }

  /// What is left of the budget beside contents that do not count in the window.
  double roomBeside(double otherBytes) const { return std::max(0.0, budgetBytes_ - std::max(0.0, otherBytes)); }

  Limit limitOf(double computeUs, double upUs, double downUs) const {
    if (togetherUs(upUs, downUs, interference_) <= computeUs)
      return Limit::Compute;
    // Both directions as busy as the link allows, whichever of the two the window has more for.
    if (std::min(upUs, downUs) >= (1 - interference_) * std::max(upUs, downUs))
      return Limit::Both;
    return upUs > downUs ? Limit::Up : Limit::Down;
  }

  Bound describe(const std::vector<Choice> &choices) const {
    Bound result;
    result.totalUs = std::max(choices[last_].totalUs, 0.0);
    for (std::size_t j = last_; j > 0; j = choices[j].begin) {
      const Choice &choice = choices[j];
      switch (choice.limit) {
      case Limit::Compute:
        result.computeUs += choice.windowUs;
        break;
      case Limit::Up:
        result.upUs += choice.windowUs;
        break;
      case Limit::Down:
        result.downUs += choice.windowUs;
        break;
      case Limit::Both:
        result.bothUs += choice.windowUs;
        break;
      }
    }
    for (double *us : {&result.totalUs, &result.computeUs, &result.upUs, &result.downUs, &result.bothUs})
      *us /= static_cast<double>(rounds_);
    return result;
  }

  std::size_t round_;  ///< points of a replay
  std::size_t rounds_; ///< replays
  std::size_t last_;
  std::size_t first_; ///< segment after point 0
  std::vector<double> pointsUs_;
  double budgetBytes_, hostedBytes_;
  double upUsPerByte_, downUsPerByte_;
  RemakePrices prices_;
  bool anyRemade_ = false;
  double interference_;
  std::vector<std::vector<UpDemand>> upAt_;       ///< by `at`
  std::vector<std::vector<DownDemand>> downFrom_; ///< by `from`
  std::vector<std::vector<DownDemand>> downTo_;   ///< by `to`
  std::vector<double> heldBytes_;                 ///< by point: what the node that starts or ends there uses
};

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
          histories(Histories(problem.description_, problem.kind_, problem.holdsOperands_, problem.keepsHostCopy_,
                              problem.graph_, problem.timeline_, problem.shares_, problem.prices_, segments)
                        .build()) {}

    /// From right after the cut before `firstCut`.
    Bound search(std::size_t firstCut, std::size_t rounds) const {
      WindowSearch search(times, firstCut * problem.segmentsPerCut(), rounds, problem.privateBytes_,
                          problem.hostedBytes_, problem.machine_);
      for (const PieceHistory &history : histories)
        search.add(history);
      return search.solve();
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
