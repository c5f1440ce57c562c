// SPDX-License-Identifier: Apache-2.0
#include "test/unit/check/RandomRepetitions.h"

#include "test/unit/check/Random.h"
#include "test/unit/check/RandomGraph.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <optional>
#include <set>
#include <utility>

namespace pumpgraph::test {

namespace {

using Version = std::int32_t; ///< a captured node, or one of these
constexpr Version none = -1;
constexpr Version boundary = -2;

constexpr std::size_t mostItems = maxNodes;
using Items = std::bitset<mostItems>;

/// A node of the new step.
struct Item {
  std::int32_t work = 0; ///< the captured node that runs
  bool again = false;
};

/// What the captured nodes do to single bytes, and whether an order of them and of repetitions leaves every node the
/// values that it has in the captured step.
class Bytes {
public:
  explicit Bytes(const Description &captured)
      : captured_(captured), works_(captured.nodes.size()), repetitions_(captured.nodes.size()) {
    std::size_t count = 0;
    for (const Buffer &buffer : captured.buffers) {
      first_.push_back(count);
      count += buffer.size;
      start_.resize(count, buffer.liveIn ? boundary : none);
      isLiveOut_.resize(count, buffer.liveOut);
    }
    end_ = start_;
    for (NodeIndex node = 0; node < captured.nodes.size(); ++node)
      listWork(node);
  }

  struct Fault {
    std::size_t item = 0; ///< as many as there are: the end of the step
    Version wanted = none;
  };
  /// The first byte of another version than it should have.
  std::optional<Fault> faultOf(const std::vector<Item> &items) const {
    std::vector<Version> found = start_;
    for (std::size_t item = 0; item < items.size(); ++item) {
      const Work &work = workOf(items[item]);
      for (const auto &[byte, wanted] : work.needs)
        if (wanted != none && found[byte] != wanted)
          return Fault{item, wanted};
      for (const std::size_t byte : work.writes)
        found[byte] = items[item].work;
    }
    for (std::size_t byte = 0; byte < found.size(); ++byte)
      if (isLiveOut_[byte] && end_[byte] != none && found[byte] != end_[byte])
        return Fault{items.size(), end_[byte]};
    return std::nullopt;
  }

  bool conflict(const Item &left, const Item &right) const {
    const Work &first = workOf(left);
    const Work &second = workOf(right);
    const auto share = [](const std::set<std::size_t> &some, const std::set<std::size_t> &others) {
      return std::any_of(some.begin(), some.end(), [&](std::size_t byte) { return others.contains(byte); });
    };
    return share(first.writes, second.touches) || share(first.touches, second.writes);
  }

private:
  struct Work {
    std::vector<std::pair<std::size_t, Version>> needs;
    std::set<std::size_t> writes;
    std::set<std::size_t> touches;
  };

  const Work &workOf(const Item &item) const {
    return (item.again ? repetitions_ : works_)[static_cast<std::size_t>(item.work)];
  }

  void listWork(NodeIndex node) {
    list(works_[node], node, false);
    list(repetitions_[node], node, true);
    for (const std::size_t byte : works_[node].writes)
      end_[byte] = static_cast<Version>(node);
  }

  void list(Work &work, NodeIndex node, bool isAgain) {
    for (const Access &access : captured_.nodes[node].accesses)
      for (std::uint64_t offset = access.range.offset; offset < access.range.end() && !(isAgain && access.isAside);
           ++offset) {
        const std::size_t byte = first_[access.buffer] + offset;
        work.touches.insert(byte);
        if (access.must != modeWrite)
          work.needs.push_back({byte, end_[byte]});
        if ((access.may & modeWrite) != 0)
          work.writes.insert(byte);
      }
  }

  const Description &captured_;
  std::vector<std::size_t> first_; ///< by buffer
  std::vector<Version> start_;     ///< by byte of all buffers
  std::vector<Version> end_;       ///< the same, after the nodes that are listed
  std::vector<bool> isLiveOut_;
  std::vector<Work> works_;       ///< by captured node
  std::vector<Work> repetitions_; ///< by captured node: of one that runs again
};

class Repeater {
public:
  Repeater(const Description &captured, std::uint64_t seed)
      : random_(mix(seed, 6)), captured_(captured), bytes_(captured_) {
    for (std::size_t node = 0; node < captured_.nodes.size(); ++node)
      items_.push_back({static_cast<std::int32_t>(node), false});
  }

  RepeatingStep run(bool makesMistakes) {
    std::size_t wanted = random_.between(1, 4);
    for (int attempts = 0; attempts < 16 && wanted > 0; ++attempts)
      wanted -= repeatSomething();
    if (makesMistakes && random_.chance(60))
      mistakeAmongNodes();
    Description step = build();
    if (makesMistakes && mistake_ == Mistake::None && random_.chance(60))
      mistakeInside(step);
    return {std::move(step), mistake_, static_cast<unsigned>(std::count_if(items_.begin(), items_.end(), isAgain))};
  }

private:
  static bool isAgain(const Item &item) { return item.again; }

  const Node &nodeOf(std::int32_t work) const { return captured_.nodes[static_cast<std::size_t>(work)]; }
  bool lasts(std::int32_t work) const {
    const std::vector<Access> &accesses = nodeOf(work).accesses;
    return std::any_of(accesses.begin(), accesses.end(), [&](const Access &access) {
      const Buffer &buffer = captured_.buffers[access.buffer];
      return !access.isAside && (access.may & modeWrite) != 0 && (!buffer.isPrivate || buffer.liveIn || buffer.liveOut);
    });
  }
  bool canRepeat(std::int32_t work) const { return nodeOf(work).isPure && !lasts(work); }

  static std::size_t placeOf(const std::vector<Item> &items, std::int32_t work) {
    const auto found =
        std::find_if(items.begin(), items.end(), [&](const Item &item) { return item.work == work && !item.again; });
    return static_cast<std::size_t>(found - items.begin());
  }
  static void insert(std::vector<Item> &items, std::size_t place, std::int32_t work) {
    items.insert(items.begin() + static_cast<std::ptrdiff_t>(place), {work, true});
  }

  std::int32_t someWork() { return static_cast<std::int32_t>(random_.below(captured_.nodes.size())); }

  /// One node, and with it those that must run again before it or after it.
  bool repeatSomething();
  void mistakeAmongNodes();
  void mistakeInside(Description &step);
  bool changeAside(Description &step, std::int32_t work, bool becomes);
  Description build();
  std::vector<std::size_t> repetitions() const;

  Random random_;
  const Description &captured_;
  Bytes bytes_;
  std::vector<Item> items_;
  Mistake mistake_ = Mistake::None;
};

bool Repeater::repeatSomething() {
  std::vector<Item> items = items_;
  const std::int32_t work = someWork();
  if (!canRepeat(work))
    return false;
  insert(items, random_.between(placeOf(items, work) + 1, items.size()), work);
  while (items.size() < mostItems) {
    const std::optional<Bytes::Fault> fault = bytes_.faultOf(items);
    if (!fault) {
      items_ = std::move(items);
      return true;
    }
    if (fault->wanted < 0 || !canRepeat(fault->wanted) || placeOf(items, fault->wanted) >= fault->item)
      return false;
    insert(items, fault->item, fault->wanted);
  }
  return false;
}

std::vector<std::size_t> Repeater::repetitions() const {
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < items_.size(); ++place)
    if (items_[place].again)
      places.push_back(place);
  return places;
}

void Repeater::mistakeAmongNodes() {
  const std::vector<std::size_t> places = repetitions();
  constexpr std::array<Mistake, 5> mistakes{Mistake::WrongValue, Mistake::LinkDropped, Mistake::Moved,
                                            Mistake::AnotherNode, Mistake::Lasting};
  const Mistake mistake = mistakes[random_.below(mistakes.size())];
  if (mistake == Mistake::WrongValue || mistake == Mistake::Lasting) {
    const std::int32_t work = someWork();
    if (!nodeOf(work).isPure || lasts(work) != (mistake == Mistake::Lasting) || items_.size() == mostItems)
      return;
    insert(items_, random_.between(placeOf(items_, work) + 1, items_.size()), work);
    mistake_ = mistake;
    return;
  }
  if (places.empty())
    return;
  const std::size_t place = places[random_.below(places.size())];
  const std::int32_t work = mistake == Mistake::AnotherNode ? someWork() : items_[place].work;
  if (mistake == Mistake::AnotherNode && (!canRepeat(work) || placeOf(items_, work) > place))
    return;
  items_.erase(items_.begin() + static_cast<std::ptrdiff_t>(place));
  if (mistake == Mistake::Moved)
    insert(items_, random_.between(placeOf(items_, work) + 1, items_.size()), work);
  if (mistake == Mistake::AnotherNode)
    insert(items_, place, work);
  mistake_ = mistake;
}

/// With no more edges than repetitions need, and a few others.
Description Repeater::build() {
  Description step = captured_;
  step.nodes.clear();
  step.edges.clear();
  std::vector<Items> completed(items_.size());
  std::vector<NodeIndex> newNumber(captured_.nodes.size());
  std::set<std::pair<NodeIndex, NodeIndex>> joined;
  const auto add = [&](NodeIndex from, NodeIndex to, EdgeKind kind) {
    if (!joined.insert({from, to}).second)
      return;
    step.edges.push_back({from, to, kind});
    if (kind == EdgeKind::Full)
      completed[to] |= completed[from], completed[to].set(from);
  };
  for (NodeIndex index = 0; index < items_.size(); ++index) {
    const auto &[work, again] = items_[index];
    Node node = nodeOf(work);
    if (again) {
      node.kind = NodeKind::Rematerialize;
      node.repeats = std::exchange(node.captured, notCaptured);
      std::erase_if(node.accesses, [](const Access &access) { return access.isAside; });
    } else {
      newNumber[static_cast<std::size_t>(work)] = index;
      for (const Edge &edge : captured_.edges)
        if (edge.to == static_cast<NodeIndex>(work))
          add(newNumber[edge.from], index, edge.kind);
    }
    step.nodes.push_back(std::move(node));
    for (NodeIndex earlier = index; earlier-- > 0;)
      if (const bool needsOrder = again || items_[earlier].again; needsOrder && !completed[index].test(earlier))
        if (bytes_.conflict(items_[earlier], items_[index]) || random_.chance(3))
          add(earlier, index, EdgeKind::Full);
  }
  return step;
}

/// One access of the captured node becomes aside, or is so no more.
bool Repeater::changeAside(Description &step, std::int32_t work, bool becomes) {
  std::vector<Access *> found;
  std::vector<Node *> repetitions;
  for (Node &node : step.nodes) {
    if (node.repeats == work)
      repetitions.push_back(&node);
    for (Access &access : node.accesses)
      if (node.captured == work && access.isAside != becomes)
        found.push_back(&access);
  }
  if (found.empty())
    return false;
  Access &access = *found[random_.below(found.size())];
  for (Node *node : repetitions)
    if (becomes)
      node->accesses.erase(std::find(node->accesses.begin(), node->accesses.end(), access));
  access.isAside = becomes;
  return true;
}

void Repeater::mistakeInside(Description &step) {
  const std::vector<std::size_t> places = repetitions();
  if (places.empty())
    return;
  Node &node = step.nodes[places[random_.below(places.size())]];
  constexpr std::array<Mistake, 8> mistakes{Mistake::AnotherPosition, Mistake::NotPure,       Mistake::AccessDropped,
                                            Mistake::AccessChanged,   Mistake::EdgeDropped,   Mistake::EdgeProgrammatic,
                                            Mistake::AsideGained,     Mistake::AsideForgotten};
  const Mistake mistake = mistakes[random_.below(mistakes.size())];
  if (mistake == Mistake::AnotherPosition) {
    const std::int32_t work = someWork();
    if (work == node.repeats)
      return;
    node.repeats = work;
  }
  if (mistake == Mistake::NotPure)
    for (Node &original : step.nodes)
      original.isPure &= original.captured != node.repeats;
  const bool isOfAside = mistake == Mistake::AsideGained || mistake == Mistake::AsideForgotten;
  if (isOfAside && !changeAside(step, node.repeats, mistake == Mistake::AsideGained))
    return;
  if (mistake == Mistake::AccessDropped || mistake == Mistake::AccessChanged) {
    if (node.accesses.empty())
      return;
    const std::size_t access = random_.below(node.accesses.size());
    if (mistake == Mistake::AccessDropped)
      node.accesses.erase(node.accesses.begin() + static_cast<std::ptrdiff_t>(access));
    else if (random_.chance(50))
      node.accesses[access].may ^= node.accesses[access].may == modeWrite ? modeRead : modeWrite;
    else if (node.accesses[access].range.size > 1)
      --node.accesses[access].range.size;
    else
      return;
  }
  if (mistake == Mistake::EdgeDropped || mistake == Mistake::EdgeProgrammatic) {
    std::vector<std::size_t> edges;
    for (std::size_t edge = 0; edge < step.edges.size(); ++edge)
      for (const NodeIndex end : {step.edges[edge].from, step.edges[edge].to})
        if (&step.nodes[end] == &node)
          edges.push_back(edge);
    if (edges.empty())
      return;
    const std::size_t edge = edges[random_.below(edges.size())];
    if (mistake == Mistake::EdgeDropped)
      step.edges.erase(step.edges.begin() + static_cast<std::ptrdiff_t>(edge));
    else
      step.edges[edge].kind = EdgeKind::Programmatic;
  }
  mistake_ = mistake;
}

} // namespace

const char *toText(Mistake mistake) {
  switch (mistake) {
  case Mistake::None:
    return "none";
  case Mistake::WrongValue:
    return "repetition anywhere";
  case Mistake::LinkDropped:
    return "repetition dropped";
  case Mistake::Moved:
    return "repetition moved";
  case Mistake::AnotherNode:
    return "repetition of another node";
  case Mistake::AnotherPosition:
    return "another node named";
  case Mistake::Lasting:
    return "lasting buffer written again";
  case Mistake::NotPure:
    return "original not pure";
  case Mistake::AccessDropped:
    return "access dropped";
  case Mistake::AccessChanged:
    return "access changed";
  case Mistake::EdgeDropped:
    return "edge dropped";
  case Mistake::EdgeProgrammatic:
    return "edge made programmatic";
  case Mistake::AsideGained:
    return "access made aside";
  case Mistake::AsideForgotten:
    return "access aside no more";
  }
  return "";
}

/// Some of a node's accesses, with the others of the same bytes.
static void setSomeAside(Node &node, Random &random) {
  for (std::size_t i = 0; i < node.accesses.size(); ++i)
    if (random.chance(30)) {
      node.accesses[i].isAside = true;
      node.accesses[i].parameter = static_cast<std::int32_t>(i);
    }
  for (std::size_t other = 0; other = accessBesideOneAside(node.accesses), other < node.accesses.size();) {
    node.accesses[other].isAside = true;
    node.accesses[other].parameter = static_cast<std::int32_t>(other);
  }
}

Description repeatableStep(Description step, std::uint64_t seed) {
  Random random(mix(seed, 7));
  const unsigned purePercent = random.chance(50) ? 100 : 60;
  const unsigned ownPercent = random.chance(70) ? 50 : 0;
  const unsigned certainPercent = random.chance(70) ? 50 : 0;
  for (Buffer &buffer : step.buffers)
    if (random.chance(ownPercent)) {
      buffer.isPrivate = true;
      buffer.liveIn = buffer.liveOut = false;
    }
  for (Node &node : step.nodes) {
    node.isPure = isRepeatable(node.kind) && random.chance(purePercent);
    for (Access &access : node.accesses)
      if (node.kind == NodeKind::Kernel && random.chance(certainPercent)) {
        if (access.may == modeReadWrite)
          access.may = random.chance(50) ? modeRead : modeWrite;
        access.must = access.may;
        access.evidence = Evidence::Declared;
      }
  }
  if (random.chance(60))
    for (Node &node : step.nodes)
      if (node.isPure)
        setSomeAside(node, random);
  return step;
}

RepeatingStep withRepetitions(const Description &captured, std::uint64_t seed, bool makesMistakes) {
  return Repeater(captured, seed).run(makesMistakes);
}

Description withoutLimit(const Description &step) {
  Description plan = step;
  plan.stage = Stage::Planned;
  std::int32_t next = 0;
  for (BufferIndex index = 0; index < plan.buffers.size(); ++index) {
    Buffer &buffer = plan.buffers[index];
    for (std::uint64_t page = 0; page < plan.pageCount(index); ++page)
      buffer.frames.push_back(next++);
    if (buffer.isPrivate && buffer.liveOut)
      buffer.resident = {{0, buffer.size}};
  }
  plan.budgetBytes = static_cast<std::uint64_t>(next) * plan.pageBytes;
  return plan;
}

} // namespace pumpgraph::test
