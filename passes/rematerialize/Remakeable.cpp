// SPDX-License-Identifier: Apache-2.0
#include "passes/rematerialize/Remakeable.h"

#include "passes/rematerialize/StepValues.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

namespace pumpgraph {
namespace {

using Obstacle = Remakeable::Obstacle;

/// "mm" of "layer3.fc forward (mm)".
std::string kindOf(const Node &maker) {
  const std::string &name = maker.label.empty() ? maker.name : maker.label;
  const std::size_t open = name.rfind('(');
  return maker.label.empty() || open == std::string::npos || !name.ends_with(')')
             ? name
             : name.substr(open + 1, name.size() - open - 2);
}

class Finder {
public:
  explicit Finder(const Description &captured)
      : captured_(captured), values_(captured), known_(values_.values().size()),
        writtenOverBy_(values_.values().size()) {
    IndexedVector<AtomIndex, ValueIndex> last(values_.atoms().size());
    const auto end = static_cast<NodeIndex>(captured.nodes.size());
    for (std::uint32_t i = 0; i < values_.values().size(); ++i) { // those of an atom ascend
      const Value &value = values_.values()[ValueIndex{i}];
      if (value.maker != noMaker)
        writtenOverBy_[last[value.atom]] = value.maker;
      writtenOverBy_[ValueIndex{i}] = end;
      last[value.atom] = ValueIndex{i};
    }
  }

  Remakeable find() {
    Remakeable found;
    findPeak(found);
    std::map<std::pair<Remakeable::Against, std::string>, std::uint64_t> obstacles;
    for (std::uint32_t i = 0; i < values_.values().size(); ++i) {
      const ValueIndex index{i};
      if (!isAlive(index, found.peak))
        continue;
      const std::uint64_t bytes = values_.bytes(index);
      found.alive.emplace_back(values_.buffer(index), values_.atoms()[values_.values()[index].atom].range);
      if (values_.values()[index].maker == noMaker)
        found.before += bytes;
      else if (const std::optional<Obstacle> &obstacle = obstacleTo(index, found.peak))
        obstacles[{obstacle->against, obstacle->name}] += bytes;
      else
        found.again += bytes;
    }
    for (const auto &[what, bytes] : obstacles)
      found.obstacles.push_back({what.first, what.second, bytes});
    std::stable_sort(found.obstacles.begin(), found.obstacles.end(),
                     [](const auto &a, const auto &b) { return a.bytes > b.bytes; });
    return found;
  }

private:
  /// Nodes during which the value is there and may be looked at later: [first, second). What a node writes over does
  /// not count beside what it leaves.
  std::pair<NodeIndex, NodeIndex> lifeOf(ValueIndex index) const {
    const Value &value = values_.values()[index];
    const auto end = static_cast<NodeIndex>(captured_.nodes.size());
    const bool hasValue = value.maker != noMaker || captured_.buffers[values_.buffer(index)].liveIn;
    if (!hasValue)
      return {end, end};
    const NodeIndex first = value.maker == noMaker ? 0 : value.maker;
    const NodeIndex last = value.readers.empty() ? first : value.readers.back();
    return {first, value.outlives ? end : std::min(last + 1, std::max(first, writtenOverBy_[index]))};
  }
  bool isAlive(ValueIndex index, NodeIndex node) const {
    const auto [first, end] = lifeOf(index);
    return first <= node && node < end;
  }

  void findPeak(Remakeable &found) const {
    std::vector<std::int64_t> bytes(captured_.nodes.size() + 1, 0);
    for (std::uint32_t i = 0; i < values_.values().size(); ++i) {
      const auto [first, end] = lifeOf(ValueIndex{i});
      bytes[first] += static_cast<std::int64_t>(values_.bytes(ValueIndex{i}));
      bytes[end] -= static_cast<std::int64_t>(values_.bytes(ValueIndex{i}));
    }
    std::partial_sum(bytes.begin(), bytes.end(), bytes.begin());
    const auto peak = std::max_element(bytes.begin(), bytes.end());
    found.peak = static_cast<NodeIndex>(peak - bytes.begin());
    found.bytes = static_cast<std::uint64_t>(*peak);
  }

  /// Why it cannot be made again right after the node; nothing if it can.
  const std::optional<Obstacle> &obstacleTo(ValueIndex index, NodeIndex after) {
    if (!known_[index]) // what a maker needs is older than what it makes: this comes to an end
      known_[index].emplace(findObstacle(index, after));
    return *known_[index];
  }
  std::optional<Obstacle> findObstacle(ValueIndex index, NodeIndex after) {
    const Value &value = values_.values()[index];
    const Node &maker = captured_.nodes[value.maker];
    if (!isRepeatable(maker.kind) || !maker.isPure)
      return Obstacle{Remakeable::Against::NotPure, kindOf(maker)};
    if (value.isAside || !values_.mayRunAgain(value.maker))
      return Obstacle{Remakeable::Against::Lasting, kindOf(maker)};
    for (const ValueIndex operand : values_.operandsAgain(value.maker)) {
      const Value &needed = values_.values()[operand];
      const Buffer &buffer = captured_.buffers[values_.buffer(operand)];
      if (writtenOverBy_[operand] > after || (needed.maker == noMaker && !buffer.liveIn))
        continue;
      if (needed.maker == noMaker)
        return Obstacle{Remakeable::Against::Overwritten, buffer.name};
      if (std::optional<Obstacle> before = obstacleTo(operand, after))
        return before;
    }
    return std::nullopt;
  }

  const Description &captured_;
  const StepValues values_;
  IndexedVector<ValueIndex, std::optional<std::optional<Obstacle>>> known_;
  IndexedVector<ValueIndex, NodeIndex> writtenOverBy_; ///< the number of nodes where nobody does
};

} // namespace

Remakeable findRemakeable(const Description &captured) {
  return Finder(captured).find();
}

} // namespace pumpgraph
