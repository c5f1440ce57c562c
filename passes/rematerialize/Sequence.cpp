// SPDX-License-Identifier: Apache-2.0
#include "passes/rematerialize/Sequence.h"

#include "passes/analysis/Order.h"

#include <algorithm>
#include <map>
#include <set>

namespace pumpgraph {
namespace {

class SequenceBuilder {
public:
  SequenceBuilder(const Description &captured, const StepValues &values, const Lifetimes &lifetimes)
      : captured_(captured), values_(values), lifetimes_(lifetimes), held_(values.atoms().size()),
        isGivenUp_(values.values().size(), false), isWanted_(values.values().size(), false) {
    for (std::uint32_t atom = 0; atom < values_.atoms().size(); ++atom)
      held_[AtomIndex{atom}] = values_.first(AtomIndex{atom});
    turns_.reserve(captured.nodes.size() * 5 / 4);
  }

  std::optional<std::vector<Turn>> build() {
    for (NodeIndex node = 0; node < captured_.nodes.size(); ++node) {
      at_ = node;
      for (const ValueIndex operand : values_.operands(node))
        if (!makeAgain(operand))
          return std::nullopt;
      if (!std::ranges::all_of(values_.operands(node), [&](ValueIndex operand) { return isThere(operand); }))
        return std::nullopt; // making one has written over another
      emit(node, false);
      changes_.clear();
      giveUpAfter(node);
      if (turns_.size() > mostTurnsPerNode * captured_.nodes.size())
        return std::nullopt;
    }
    return std::move(turns_);
  }

private:
  /// Where operands are written over by each other's makers, every level of them may double the repetitions.
  static constexpr std::size_t mostTurnsPerNode = 8;

  bool isThere(ValueIndex value) const {
    const bool hasValue = values_.values()[value].maker != noMaker || captured_.buffers[values_.buffer(value)].liveIn;
    return !hasValue || (held_[values_.values()[value].atom] == value && !isGivenUp_[value]);
  }

  /// Whether the value is there afterwards.
  bool makeAgain(ValueIndex value) {
    if (isThere(value))
      return true;
    const std::size_t before = changes_.size(), turns = turns_.size();
    if (isMadeAgain(value))
      return true;
    for (; changes_.size() > before; changes_.pop_back()) {
      held_[values_.values()[changes_.back().result].atom] = changes_.back().held;
      isGivenUp_[changes_.back().result] = changes_.back().wasGivenUp;
    }
    turns_.resize(turns);
    // What cannot be made again and nobody has written over was not given up, then.
    if (held_[values_.values()[value].atom] == value)
      isGivenUp_[value] = false;
    return isThere(value);
  }
  bool isMadeAgain(ValueIndex value) {
    const NodeIndex maker = values_.values()[value].maker;
    if (maker == noMaker || isWanted_[value] || values_.values()[value].isAside || !values_.mayRunAgain(maker) ||
        turns_.size() > mostTurnsPerNode * captured_.nodes.size())
      return false;
    isWanted_[value] = true;
    const bool isMade = repeat(maker);
    isWanted_[value] = false;
    return isMade && isThere(value);
  }

  bool repeat(NodeIndex node) {
    for (const ValueIndex operand : values_.operandsAgain(node))
      if (!makeAgain(operand))
        return false;
    for (const ValueIndex operand : values_.operandsAgain(node))
      if (!isThere(operand))
        return false;
    for (const ValueIndex result : values_.resultsAgain(node))
      if (!mayReplace(result, node))
        return false;
    emit(node, true);
    return true;
  }

  /// Whether nobody needs any more what the result is written over.
  bool mayReplace(ValueIndex result, NodeIndex node) const {
    const ValueIndex old = held_[values_.values()[result].atom];
    if (old == result || isGivenUp_[old])
      return true;
    const Value &value = values_.values()[old];
    if (value.outlives)
      return false;
    const bool isNeeded = !value.readers.empty() && value.readers.back() >= at_;
    return !isNeeded || std::ranges::find(values_.operandsAgain(node), old) != values_.operandsAgain(node).end();
  }

  void emit(NodeIndex node, bool again) {
    turns_.push_back({node, again});
    for (const ValueIndex result : again ? values_.resultsAgain(node) : values_.results(node)) {
      ValueIndex &held = held_[values_.values()[result].atom];
      changes_.push_back({result, held, isGivenUp_[result]});
      held = result;
      isGivenUp_[result] = false;
    }
  }

  void giveUpAfter(NodeIndex node) {
    const auto end = [&](ValueIndex index) {
      const Value &value = values_.values()[index];
      const NodeIndex last = value.readers.empty() ? value.maker : value.readers.back();
      if (lifetimes_.droppedAfter[index] == node || (last == node && !value.outlives && !lifetimes_.kept[index] &&
                                                     value.maker != noMaker && values_.mayRunAgain(value.maker)))
        isGivenUp_[index] = true;
    };
    std::ranges::for_each(values_.operands(node), end);
    std::ranges::for_each(values_.results(node), end);
  }

  /// A result that took the place of what was held.
  struct Change {
    ValueIndex result{}, held{};
    bool wasGivenUp = false;
  };

  const Description &captured_;
  const StepValues &values_;
  const Lifetimes &lifetimes_;
  std::vector<Change> changes_; ///< since the last captured node, to undo them
  IndexedVector<AtomIndex, ValueIndex> held_;
  IndexedVector<ValueIndex, bool> isGivenUp_;
  IndexedVector<ValueIndex, bool> isWanted_; ///< by repetitions under way
  NodeIndex at_ = 0;                         ///< the captured node that comes next
  std::vector<Turn> turns_;
};

} // namespace

std::optional<std::vector<Turn>> sequenceOf(const Description &captured, const StepValues &values,
                                            const Lifetimes &lifetimes) {
  return SequenceBuilder(captured, values, lifetimes).build();
}

namespace {

/// Adds edges between repetitions and all that they conflict with. The last writer does not stand for those before it:
/// a programmatic edge may be all that orders these.
class ConflictEdges {
public:
  explicit ConflictEdges(Description &step) : step_(step), values_(step), touches_(values_.atoms().size()) {}

  void add() {
    for (const Edge &edge : step_.edges)
      predecessors_[edge.to].push_back(edge);
    for (NodeIndex node = 0; node < step_.nodes.size(); ++node) {
      std::set<NodeIndex> wanted;
      for (const ValueIndex operand : values_.operands(node))
        want(wanted, node, operand, false);
      for (const ValueIndex result : values_.results(node))
        want(wanted, node, result, true);
      append(node, wanted);
      for (const ValueIndex result : values_.results(node))
        touch(node, result, true);
      for (const ValueIndex operand : values_.operands(node))
        touch(node, operand, false);
    }
  }

private:
  struct Touch {
    NodeIndex node;
    bool writes;
  };
  std::vector<Touch> &touchesOf(ValueIndex value) { return touches_[values_.values()[value].atom]; }

  void want(std::set<NodeIndex> &wanted, NodeIndex node, ValueIndex value, bool writes) {
    for (const Touch &other : touchesOf(value))
      if ((writes || other.writes) && (isRepetition(node) || isRepetition(other.node)))
        wanted.insert(other.node);
  }
  void touch(NodeIndex node, ValueIndex value, bool writes) {
    std::vector<Touch> &touches = touchesOf(value);
    if (writes) // what completes before it completes before all that wait for it, as repetitions do, and all for them
      std::erase_if(touches, [&](const Touch &other) {
        return (isRepetition(node) || !isRepetition(other.node)) && order_.completesBefore(other.node, node);
      });
    if (touches.empty() || touches.back().node != node)
      touches.push_back({node, writes});
  }
  bool isRepetition(NodeIndex node) const { return step_.nodes[node].kind == NodeKind::Rematerialize; }

  /// The latest first: it often comes after the others.
  void append(NodeIndex node, const std::set<NodeIndex> &wanted) {
    std::vector<NodeIndex> full;
    for (const Edge &edge : predecessors_[node])
      if (edge.kind == EdgeKind::Full)
        full.push_back(edge.from);
    for (auto other = wanted.rbegin(); other != wanted.rend(); ++other) {
      const bool isOrdered = std::ranges::any_of(
          full, [&](NodeIndex before) { return before == *other || order_.completesBefore(*other, before); });
      if (isOrdered)
        continue;
      full.push_back(*other);
      const auto given =
          std::ranges::find_if(step_.edges, [&](const Edge &edge) { return edge.from == *other && edge.to == node; });
      if (given != step_.edges.end())
        given->kind = EdgeKind::Full;
      else
        step_.edges.push_back({*other, node, EdgeKind::Full});
    }
    order_.append(full);
  }

  Description &step_;
  StepValues values_; ///< of the step with repetitions
  std::map<NodeIndex, std::vector<Edge>> predecessors_;
  IndexedVector<AtomIndex, std::vector<Touch>> touches_; ///< those that later ones may have to wait for
  Order order_;
};

} // namespace

Description withRepetitions(const Description &captured, const std::vector<Turn> &turns) {
  Description step = captured;
  step.nodes.clear();
  step.edges.clear();
  std::vector<NodeIndex> place(captured.nodes.size()); ///< by captured node
  std::vector<std::vector<Edge>> before(captured.nodes.size());
  for (const Edge &edge : captured.edges)
    before[edge.to].push_back(edge);

  std::vector<NodeIndex> waiting; ///< repetitions since the last captured node
  for (std::size_t turn = 0; turn < turns.size(); ++turn) {
    const Node &node = captured.nodes[turns[turn].node];
    const auto index = static_cast<NodeIndex>(step.nodes.size());
    step.nodes.push_back(node);
    if (turns[turn].again) {
      Node &again = step.nodes.back();
      again.kind = NodeKind::Rematerialize;
      again.repeats = node.captured;
      again.captured = notCaptured;
      std::erase_if(again.accesses, [](const Access &access) { return access.isAside; });
      waiting.push_back(index);
      continue;
    }
    place[turns[turn].node] = index;
    for (const Edge &edge : before[turns[turn].node])
      step.edges.push_back({place[edge.from], index, edge.kind});
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (i > 0)
        step.edges.push_back({waiting[i - 1], waiting[i], EdgeKind::Full});
      else
        for (const Edge &edge : before[turns[turn].node])
          step.edges.push_back({place[edge.from], waiting[0], EdgeKind::Full});
    }
    if (!waiting.empty())
      step.edges.push_back({waiting.back(), index, EdgeKind::Full});
    waiting.clear();
  }
  ConflictEdges(step).add();
  return step;
}

} // namespace pumpgraph
