// SPDX-License-Identifier: Apache-2.0
#include "passes/lower/LowerManaged.h"

#include "passes/analysis/HostedAccess.h"
#include "passes/lower/PageStays.h"
#include "passes/lower/PredictManaged.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace pumpgraph {

namespace {

/// A larger operation would keep its lane for too long.
constexpr std::uint64_t mostBytes = std::uint64_t{512} << 20;

/// How far pages are joined to one operation: each costs its overhead, but what is larger waits for more and is waited
/// for longer. What joins for nothing, discards, drops and what has the same room to wait for, does up to `mostBytes`.
struct Pieces {
  std::uint64_t evictBytes;
  std::uint64_t prefetchBytes;
};
constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;
constexpr Pieces usualPieces{32 * mebibyte, 32 * mebibyte};
/// What else is tried. Of those that are predicted to take as long the first is taken.
constexpr Pieces otherPieces[] = {{32 * mebibyte, 128 * mebibyte},
                                  {128 * mebibyte, 128 * mebibyte},
                                  {8 * mebibyte, 32 * mebibyte},
                                  {mostBytes, mostBytes}};
/// With more operations their overhead is small beside the step, and trying takes too long.
constexpr std::size_t mostOperationsToTry = 4096;

using OperationId = PageStays::OperationId;
using Nodes = PageStays::Nodes;
using PageId = PageStays::PageId;
using Page = PageStays::Page;
using Stay = PageStays::Stay;

struct AgentOperation {
  NodeKind kind = NodeKind::Prefetch;
  BufferIndex buffer = 0;
  Range range;
  Nodes after;                    ///< captured nodes
  std::set<OperationId> afterToo; ///< operations
  Nodes before;                   ///< captured nodes that wait for it
  bool bringsValue = true;        ///< prefetches only; others bring memory for what will be written
  std::int64_t slot = -1;         ///< the last captured node that it comes after, also by way of others
  /// Departures only: the first captured node to use their room, counted on into the next replay.
  NodeIndex neededAt = 0;
};

/// Whether two lowered descriptions of one plan are the same.
bool isAlike(const Description &one, const Description &other) {
  return one.edges == other.edges && std::equal(one.nodes.begin(), one.nodes.end(), other.nodes.begin(),
                                                other.nodes.end(), [](const Node &a, const Node &b) {
                                                  return a.kind == b.kind && a.buffer == b.buffer && a.range == b.range;
                                                });
}

class ManagedLowering {
public:
  ManagedLowering(const Description &captured, const Description &planned, const ManagedOptions &options)
      : captured_(captured), planned_(planned), options_(options), isOnlyRead_(onlyRead(captured)),
        pages_(captured, planned) {}

  Description run() {
    choosePieces();
    const Description waiting = lower(options_.prefetching);
    return options_.hints && options_.prefetching == Prefetching::Ahead ? withHints(waiting) : waiting;
  }

private:
  /// Those with which the step is predicted to be the fastest if pages come ahead; however they come, the same leave.
  void choosePieces() {
    std::vector<Description> tried{lower(Prefetching::Ahead)};
    if (operations_.empty() || operations_.size() > mostOperationsToTry)
      return;
    double leastUs = predictManaged(tried.front(), options_.machine).totalUs;
    Pieces best = pieces_;
    for (const Pieces &pieces : otherPieces) {
      // Times this close are the same: the model is no better.
      constexpr double tolerance = 0.999;
      pieces_ = pieces;
      Description lowered = lower(Prefetching::Ahead);
      if (std::any_of(tried.begin(), tried.end(), [&](const Description &other) { return isAlike(other, lowered); }))
        continue;
      const double us = predictManaged(tried.emplace_back(std::move(lowered)), options_.machine).totalUs;
      if (us >= leastUs * tolerance)
        continue;
      leastUs = us;
      best = pieces;
    }
    pieces_ = best;
  }

  /// With a wait for every prefetch.
  Description lower(Prefetching prefetching) {
    prefetching_ = prefetching;
    operations_.clear();
    addDepartures();
    addArrivals();
    if (prefetching_ == Prefetching::AtLaunch)
      holdBackArrivals();
    orderByPage();
    completeOrder();
    AdviceOptions advice = options_.advice;
    advice.readMostly = advice.readMostly && options_.mayDiscard;
    return insertAdvice(write(), advice);
  }

  /// Whether the page is the next one of the operation's range.
  bool continues(const AgentOperation &operation, const Page &page) const {
    return operation.buffer == page.buffer && operation.range.end() == page.index * captured_.pageBytes;
  }

  std::uint64_t mostBytesOfDeparture(const Page &page, bool discards) const {
    const bool isDropped = options_.mayDiscard && options_.advice.readMostly && isOnlyRead_[page.buffer];
    return discards || isDropped ? mostBytes : pieces_.evictBytes;
  }

  /// Pages leave when the last node of their stay has completed; neighbours that leave alike leave together.
  void addDepartures() {
    using Key = std::tuple<PageId, Nodes, bool, std::optional<NodeIndex>>;
    struct Leaving {
      Key key;
      Stay *stay;
      NodeIndex neededAt; ///< who uses the frame next
    };
    std::vector<Leaving> leaving;
    for (std::vector<Stay> &stays : pages_.byFrame())
      for (std::size_t i = 0; stays.size() > 1 && i < stays.size(); ++i) {
        Stay &stay = stays[i];
        if (i + 1 == stays.size() && PageStays::overTheBoundary(stays))
          continue;
        std::optional<NodeIndex> next;
        const bool discards = pages_.isDeadAfter(stay, next) && options_.mayDiscard;
        const Nodes &uses = pages_.page(stay.page).uses;
        // A discard ends all that was before; an eviction need not wait for earlier stays.
        const std::size_t from = discards ? 0 : stay.firstUse;
        Nodes after = pages_.latest(uses.begin() + static_cast<std::ptrdiff_t>(from),
                                    uses.begin() + static_cast<std::ptrdiff_t>(stay.lastUse) + 1);
        const bool isLast = i + 1 == stays.size();
        const Stay &following = isLast ? stays.front() : stays[i + 1];
        const NodeIndex neededAt = pages_.page(following.page).uses[following.firstUse] +
                                   (isLast ? static_cast<NodeIndex>(captured_.nodes.size()) : 0);
        leaving.push_back({{stay.page, std::move(after), discards, discards ? next : std::nullopt}, &stay, neededAt});
      }
    std::sort(leaving.begin(), leaving.end(), [](const Leaving &a, const Leaving &b) { return a.key < b.key; });
    std::map<std::tuple<Nodes, bool, std::optional<NodeIndex>>, OperationId> open; ///< to be continued
    for (const auto &[key, stay, neededAt] : leaving) {
      const auto &[id, after, discards, next] = key;
      const Page &page = pages_.page(id);
      const auto known = open.find({after, discards, next});
      if (known != open.end()) {
        AgentOperation &operation = operations_[known->second];
        if (continues(operation, page) && operation.range.size < mostBytesOfDeparture(page, discards)) {
          operation.range.size += pages_.rangeOf(page).size;
          operation.neededAt = std::min(operation.neededAt, neededAt);
          stay->departure = known->second;
          continue;
        }
      }
      const auto created = static_cast<OperationId>(operations_.size());
      open[{after, discards, next}] = created;
      AgentOperation &operation = operations_.emplace_back();
      operation.kind = discards ? NodeKind::Discard : NodeKind::Evict;
      operation.buffer = page.buffer;
      operation.range = pages_.rangeOf(page);
      operation.after = after;
      operation.slot = after.back();
      operation.neededAt = neededAt;
      if (next)
        operation.before.push_back(*next);
      stay->departure = created;
    }
  }

  /// Pages come when the one before them in their frame leaves, also those whose value nobody wants: they are written
  /// where they are, and it is better that this is the device.
  void addArrivals() {
    std::vector<std::tuple<PageId, Nodes, bool, std::optional<OperationId>>> coming;
    for (const std::vector<Stay> &stays : pages_.byFrame())
      for (std::size_t i = 0; stays.size() > 1 && i < stays.size(); ++i) {
        if (i == 0 && PageStays::overTheBoundary(stays))
          continue;
        const std::optional<OperationId> place = i == 0 ? std::nullopt : stays[i - 1].departure;
        if (isBroughtBack(stays, i))
          coming.push_back({stays[i].page, pages_.firstUses(stays[i]), pages_.needsItsValue(stays[i]), place});
        else if (place && operations_[*place].kind == NodeKind::Evict)
          for (const NodeIndex node : pages_.firstUses(stays[i]))
            addOnce(operations_[*place].before, node); // so that no more comes by faults than there is room for
      }
    std::sort(coming.begin(), coming.end());
    std::map<std::pair<Nodes, bool>, OperationId> open;
    for (const auto &[id, before, bringsValue, place] : coming) {
      const Page &page = pages_.page(id);
      const auto known = open.find({before, bringsValue});
      if (known != open.end() && continues(operations_[known->second], page) &&
          mayJoin(operations_[known->second], place)) {
        operations_[known->second].range.size += pages_.rangeOf(page).size;
      } else {
        open[{before, bringsValue}] = static_cast<OperationId>(operations_.size());
        AgentOperation &operation = operations_.emplace_back();
        operation.kind = NodeKind::Prefetch;
        operation.buffer = page.buffer;
        operation.range = pages_.rangeOf(page);
        operation.before = before;
        operation.bringsValue = bringsValue;
      }
      AgentOperation &operation = operations_[open[{before, bringsValue}]];
      if (!place)
        continue;
      operation.afterToo.insert(*place);
      operation.slot = std::max(operation.slot, operations_[*place].slot);
    }
  }

  /// Until the first node that waits for them has nothing else to wait for.
  void holdBackArrivals() {
    std::vector<Nodes> predecessors = fullPredecessors(captured_);
    for (AgentOperation &operation : operations_)
      if (operation.kind == NodeKind::Prefetch)
        for (const NodeIndex node : predecessors[operation.before.front()]) {
          addOnce(operation.after, node);
          operation.slot = std::max<std::int64_t>(operation.slot, node);
        }
  }

  /// Whether the page was discarded when it left, in this replay or at the end of the one before: then it has no memory
  /// of its own, and getting some by faults is far slower than anything else.
  bool comesWithoutMemory(const std::vector<Stay> &stays, std::size_t stay) const {
    std::size_t before = stay;
    do
      before = (before == 0 ? stays.size() : before) - 1;
    while (stays[before].page != stays[stay].page);
    const std::optional<OperationId> departure = stays[before].departure;
    return departure && operations_[*departure].kind == NodeKind::Discard;
  }

  /// What only overwrites a page that was evicted need not have it brought back, but a prefetch is faster than faults.
  bool isBroughtBack(const std::vector<Stay> &stays, std::size_t stay) const {
    return prefetching_ != Prefetching::None || comesWithoutMemory(stays, stay);
  }

  bool mayJoin(const AgentOperation &operation, std::optional<OperationId> place) const {
    // What comes after nothing of this replay waits for the evictions of the one before; nothing else does.
    if (place.has_value() == operation.afterToo.empty())
      return false;
    const bool samePlaces = !place || operation.afterToo.contains(*place);
    return operation.range.size < (samePlaces ? mostBytes : pieces_.prefetchBytes);
  }

  static void addOnce(Nodes &nodes, NodeIndex node) {
    const auto place = std::lower_bound(nodes.begin(), nodes.end(), node);
    if (place == nodes.end() || *place != node)
      nodes.insert(place, node);
  }

  /// No page leaves while it is on its way: earlier prefetches come first, also those that nobody waits for. Memory for
  /// what was discarded comes after the discard.
  void orderByPage() {
    std::map<BufferIndex, std::vector<OperationId>> leaving;
    for (OperationId id = 0; id < operations_.size(); ++id)
      if (operations_[id].kind != NodeKind::Prefetch)
        leaving[operations_[id].buffer].push_back(id);
    for (OperationId id = 0; id < operations_.size(); ++id) {
      AgentOperation &prefetch = operations_[id];
      if (prefetch.kind != NodeKind::Prefetch)
        continue;
      for (const OperationId other : leaving[prefetch.buffer]) {
        AgentOperation &departure = operations_[other];
        if (!departure.range.overlaps(prefetch.range))
          continue;
        if (prefetch.before.front() <= static_cast<NodeIndex>(departure.slot)) {
          departure.afterToo.insert(id);
          continue;
        }
        if (prefetch.bringsValue)
          continue; // in the frame, others leave and come between the two
        prefetch.afterToo.insert(other);
        prefetch.slot = std::max(prefetch.slot, departure.slot);
      }
    }
  }

  /// What an operation is asked for after: also what the operations before it are, but no more than it takes to say so.
  void completeOrder() {
    for (const OperationId id : inOrder()) {
      AgentOperation &operation = operations_[id];
      std::set<NodeIndex> all(operation.after.begin(), operation.after.end());
      for (const OperationId other : operation.afterToo)
        all.insert(operations_[other].after.begin(), operations_[other].after.end());
      const Nodes nodes(all.begin(), all.end());
      operation.after = pages_.latest(nodes.begin(), nodes.end());
    }
  }

  std::vector<OperationId> inOrder() const {
    std::vector<OperationId> ids(operations_.size());
    for (OperationId id = 0; id < ids.size(); ++id)
      ids[id] = id;
    const auto rank = [&](OperationId id) {
      const AgentOperation &operation = operations_[id];
      const bool arrives = operation.kind == NodeKind::Prefetch;
      return std::tuple(operation.slot, arrives, arrives ? operation.before.front() : operation.neededAt, id);
    };
    std::sort(ids.begin(), ids.end(), [&](OperationId a, OperationId b) { return rank(a) < rank(b); });
    return ids;
  }

  Node nodeOf(const AgentOperation &operation) const {
    Node node;
    node.kind = operation.kind;
    node.buffer = operation.buffer;
    node.range = operation.range;
    const char *verb = operation.kind == NodeKind::Prefetch ? "prefetch"
                       : operation.kind == NodeKind::Evict  ? "evict"
                                                            : "discard";
    node.name = fmt::format("{} {}", verb, captured_.buffers[operation.buffer].name);
    return node;
  }

  Description write() const {
    Description lowered;
    lowered.name = captured_.name;
    lowered.stage = Stage::LoweredManaged;
    lowered.pageBytes = captured_.pageBytes;
    lowered.budgetBytes = planned_.budgetBytes;
    lowered.buffers = planned_.buffers;
    std::vector<NodeIndex> indexOfNode(captured_.nodes.size()), indexOfOperation(operations_.size());
    const std::vector<OperationId> ids = inOrder();
    auto next = ids.begin();
    const auto addOperations = [&](std::int64_t slot) {
      for (; next != ids.end() && operations_[*next].slot <= slot; ++next) {
        indexOfOperation[*next] = static_cast<NodeIndex>(lowered.nodes.size());
        lowered.nodes.push_back(nodeOf(operations_[*next]));
      }
    };
    addOperations(-1);
    for (NodeIndex node = 0; node < captured_.nodes.size(); ++node) {
      indexOfNode[node] = static_cast<NodeIndex>(lowered.nodes.size());
      lowered.nodes.push_back(captured_.nodes[node]);
      addOperations(node);
    }
    for (const Edge &edge : captured_.edges)
      lowered.edges.push_back({indexOfNode[edge.from], indexOfNode[edge.to], edge.kind});
    for (OperationId id = 0; id < operations_.size(); ++id) {
      const AgentOperation &operation = operations_[id];
      const NodeIndex own = indexOfOperation[id];
      for (const NodeIndex node : operation.after)
        lowered.edges.push_back({indexOfNode[node], own});
      for (const OperationId other : operation.afterToo)
        lowered.edges.push_back({indexOfOperation[other], own});
      // Whoever comes after a node that waits need not wait.
      for (const NodeIndex node : pages_.earliest(operation.before.begin(), operation.before.end()))
        lowered.edges.push_back({own, indexOfNode[node]});
    }
    std::sort(lowered.edges.begin(), lowered.edges.end(),
              [](const Edge &a, const Edge &b) { return std::tuple(a.from, a.to) < std::tuple(b.from, b.to); });
    return lowered;
  }

  /// Leaves out the waits for prefetches of values that will be there long before.
  Description withHints(const Description &waiting) const {
    const Prediction prediction = predictManaged(waiting, options_.machine);
    const auto isSafe = [&](const Edge &edge) {
      if (waiting.nodes[edge.from].kind != NodeKind::Prefetch || isAdded(waiting.nodes[edge.to].kind) ||
          bringsNothing(waiting, edge.from))
        return false;
      const NodeTimes &times = prediction.nodes[edge.from];
      const double marginUs = std::max(options_.safeUs, 2 * (times.endUs - times.startUs));
      return times.endUs + marginUs < prediction.nodes[edge.to].startUs;
    };
    Description hinted = waiting;
    std::erase_if(hinted.edges, isSafe);
    return hinted;
  }

  const Description &captured_;
  const Description &planned_;
  const ManagedOptions &options_;
  std::vector<bool> isOnlyRead_; ///< by buffer
  Pieces pieces_ = usualPieces;
  Prefetching prefetching_ = Prefetching::Ahead;
  PageStays pages_;
  std::vector<AgentOperation> operations_;
};

} // namespace

Description lowerManaged(const Description &captured, const Description &planned, const ManagedOptions &options) {
  assert(captured.stage == Stage::Captured && planned.stage == Stage::Planned && "operations are made of a plan");
  return ManagedLowering(captured, planned, options).run();
}

Description withoutPlan(const Description &planned) {
  Description step = planned;
  step.stage = Stage::Captured;
  step.nodes.clear();
  step.edges.clear();
  step.budgetBytes = 0;
  step.hostBytes = 0;
  for (Buffer &buffer : step.buffers) {
    buffer.frames.clear();
    buffer.resident.clear();
    buffer.mirrored.clear();
    buffer.hosted.clear();
  }
  std::vector<BufferIndex> numbers; // in the captured step; of what continues another, where its chain begins
  for (BufferIndex buffer = 0, captured = 0; buffer < planned.buffers.size(); ++buffer)
    numbers.push_back(planned.buffers[buffer].continues == noBuffer ? captured++
                                                                    : numbers[planned.buffers[buffer].continues]);
  std::erase_if(step.buffers, [](const Buffer &buffer) { return buffer.continues != noBuffer; });
  std::vector<std::optional<NodeIndex>> index(planned.nodes.size());
  for (NodeIndex node = 0; node < planned.nodes.size(); ++node) {
    if (isAdded(planned.nodes[node].kind) || planned.nodes[node].kind == NodeKind::Rematerialize)
      continue;
    index[node] = static_cast<NodeIndex>(step.nodes.size());
    for (Access &access : step.nodes.emplace_back(planned.nodes[node]).accesses)
      access.buffer = numbers[access.buffer];
  }
  for (const Edge &edge : planned.edges)
    if (index[edge.from] && index[edge.to])
      step.edges.push_back({*index[edge.from], *index[edge.to], edge.kind});
  return step;
}

} // namespace pumpgraph
