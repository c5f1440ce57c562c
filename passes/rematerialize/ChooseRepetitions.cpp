// SPDX-License-Identifier: Apache-2.0
// A local search. A choice is a set of results that are given up over their longest gap, and of others that stay for
// repetitions that read them. It begins with the best of a few regular choices, such as a stack of layers suggests, or
// the price per byte, and goes on with groups of alike results, then with single ones.
#include "passes/rematerialize/ChooseRepetitions.h"

#include "passes/rematerialize/WindowBound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <tuple>

namespace pumpgraph {
namespace {

constexpr std::uint64_t leastBytes = std::uint64_t{1} << 20; ///< or less, where the budget is small
constexpr std::uint64_t leastShare = 1024;                   ///< of the budget, likewise
constexpr double leastGap = 0.01;                            ///< of the step's time

/// What a node leaves in a buffer.
struct Result {
  NodeIndex maker = noMaker;
  std::vector<ValueIndex> values;
  std::uint64_t bytes = 0;
  std::vector<NodeIndex> uses; ///< ascending: the maker, then readers
  std::size_t gapAfter = 0;    ///< of `uses`: where the longest gap begins
  bool mayBeDropped = false;
  bool outlives = false;
};

struct Choice {
  std::vector<bool> dropped, kept; ///< by result
  friend bool operator==(const Choice &, const Choice &) = default;
};

class Search {
public:
  Search(const Description &captured, const RepetitionOptions &options)
      : captured_(captured), options_(options), values_(captured),
        bound_(captured, values_, options.machine, options.budgetBytes) {
    findTimes();
    findResults();
    findPeak();
  }

  std::vector<Turn> run() {
    Choice none{std::vector<bool>(results_.size(), false), std::vector<bool>(results_.size(), false)};
    take(none);
    for (const std::size_t segments : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48}) {
      Choice choice = keepingCuts(segments);
      take(choice);
      choice.kept = none.kept;
      take(choice);
    }
    for (std::size_t eighths = 1; eighths <= 8; ++eighths)
      take(cheapest(eighths));
    const std::vector<std::vector<std::size_t>> groups = alikeResults();
    for (bool improves = true; improves && judged_ < options_.judgements;) {
      improves = false;
      for (const std::vector<std::size_t> &group : groups)
        improves = tryParts(group) || improves;
      for (const std::size_t result : bySize_)
        improves = flip(result) || improves;
    }
    return best_;
  }

private:
  void findTimes() {
    startUs_.push_back(0);
    for (const Node &node : captured_.nodes)
      startUs_.push_back(startUs_.back() + (std::isnan(node.costUs) ? 0 : node.costUs));
  }

  void findResults() {
    std::map<std::pair<NodeIndex, BufferIndex>, std::size_t> found;
    for (NodeIndex node = 0; node < captured_.nodes.size(); ++node)
      for (const ValueIndex value : values_.results(node)) {
        const Buffer &buffer = captured_.buffers[values_.buffer(value)];
        if (!buffer.isPrivate)
          continue;
        const auto [entry, isNew] = found.try_emplace({node, values_.buffer(value)}, results_.size());
        if (isNew)
          results_.push_back({node, {}, 0, {node}, 0, false, false});
        Result &result = results_[entry->second];
        result.values.push_back(value);
        result.bytes += values_.bytes(value);
        result.outlives = result.outlives || values_.values()[value].outlives;
        const std::vector<NodeIndex> &readers = values_.values()[value].readers;
        result.uses.insert(result.uses.end(), readers.begin(), readers.end());
      }
    const std::uint64_t least = std::min(leastBytes, options_.budgetBytes / leastShare);
    std::erase_if(results_, [&](const Result &result) { return result.bytes < least; });
    for (std::size_t i = 0; i < results_.size(); ++i) {
      Result &result = results_[i];
      std::sort(result.uses.begin(), result.uses.end());
      result.uses.erase(std::unique(result.uses.begin(), result.uses.end()), result.uses.end());
      double longest = leastGap * startUs_.back();
      for (std::size_t use = 0; use + 1 < result.uses.size(); ++use)
        if (const double gap = startUs_[result.uses[use + 1]] - startUs_[result.uses[use] + 1]; gap > longest) {
          longest = gap;
          result.gapAfter = use;
          result.mayBeDropped =
              values_.mayRunAgain(result.maker) &&
              std::ranges::none_of(result.values, [&](ValueIndex value) { return values_.values()[value].isAside; });
        }
      if (result.mayBeDropped)
        bySize_.push_back(i);
    }
    std::stable_sort(bySize_.begin(), bySize_.end(),
                     [&](std::size_t a, std::size_t b) { return results_[a].bytes > results_[b].bytes; });
  }

  /// Where the most bytes are alive, of results and nothing else.
  void findPeak() {
    std::vector<double> change(captured_.nodes.size() + 1);
    for (const Result &result : results_) {
      change[result.maker] += static_cast<double>(result.bytes);
      change[result.outlives ? captured_.nodes.size() : result.uses.back() + 1] -= static_cast<double>(result.bytes);
    }
    std::partial_sum(change.begin(), change.end(), change.begin());
    peak_ = static_cast<NodeIndex>(std::max_element(change.begin(), change.end()) - change.begin());
  }

  NodeIndex lastUseBeforePeak(const Result &result) const {
    NodeIndex last = result.maker;
    for (const NodeIndex use : result.uses)
      if (use < peak_)
        last = use;
    return last;
  }

  /// Everything that is alive at the peak is given up, but for results alive over one of `segments` - 1 cuts before it.
  Choice keepingCuts(std::size_t segments) const {
    std::vector<double> made(peak_ + 1), alive(peak_ + 2);
    double total = 0;
    for (const Result &result : results_) {
      if (result.maker >= peak_)
        continue;
      const auto bytes = static_cast<double>(result.bytes);
      alive[result.maker + 1] += bytes;
      alive[lastUseBeforePeak(result) + 1] -= bytes;
      if (isOverPeak(result)) {
        made[result.maker] += bytes;
        total += bytes;
      }
    }
    std::partial_sum(alive.begin(), alive.end(), alive.begin());
    std::vector<NodeIndex> cuts;
    const NodeIndex reach = std::max<NodeIndex>(2, peak_ / static_cast<NodeIndex>(3 * segments));
    double passed = 0;
    for (NodeIndex node = 0; node < peak_ && cuts.size() + 1 < segments; ++node) {
      passed += made[node];
      if (passed < total / static_cast<double>(segments) * static_cast<double>(cuts.size() + 1))
        continue;
      NodeIndex cut = node;
      const NodeIndex from = std::max<NodeIndex>(1, node - std::min(node, reach)), to = std::min(peak_, node + reach);
      for (NodeIndex other = from; other < to; ++other)
        if (std::tuple(alive[other], std::abs(double(other) - double(node))) <
            std::tuple(alive[cut], std::abs(double(cut) - double(node))))
          cut = other;
      cuts.push_back(cut);
    }
    Choice choice{std::vector<bool>(results_.size(), false), std::vector<bool>(results_.size(), false)};
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const Result &result = results_[i];
      const bool isCut =
          result.maker < peak_ &&
          std::ranges::any_of(
              cuts, [&](NodeIndex cut) { return result.maker < cut && cut <= lastUseBeforePeak(result); });
      choice.dropped[i] = isOverPeak(result) && !isCut;
      choice.kept[i] = isCut && !isOverPeak(result);
    }
    return choice;
  }

  /// So many eighths of the bytes that may be given up over the peak, those first whose makers take least per byte.
  Choice cheapest(std::size_t eighths) const {
    std::vector<std::size_t> over;
    std::uint64_t all = 0;
    for (std::size_t i = 0; i < results_.size(); ++i)
      if (isOverPeak(results_[i])) {
        over.push_back(i);
        all += results_[i].bytes;
      }
    const auto price = [&](std::size_t i) {
      const double us = startUs_[results_[i].maker + 1] - startUs_[results_[i].maker];
      return us / static_cast<double>(results_[i].bytes);
    };
    std::ranges::stable_sort(over, [&](std::size_t a, std::size_t b) { return price(a) < price(b); });
    Choice choice{std::vector<bool>(results_.size(), false), std::vector<bool>(results_.size(), false)};
    std::uint64_t bytes = 0;
    for (const std::size_t i : over) {
      if (bytes * 8 >= all * eighths)
        break;
      choice.dropped[i] = true;
      bytes += results_[i].bytes;
    }
    return choice;
  }

  bool isOverPeak(const Result &result) const {
    return result.mayBeDropped && result.uses[result.gapAfter] < peak_ && peak_ <= result.uses[result.gapAfter + 1];
  }

  /// The largest groups first.
  std::vector<std::vector<std::size_t>> alikeResults() const {
    std::map<std::tuple<std::string, std::uint64_t, std::vector<std::string>>, std::vector<std::size_t>> alike;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (!results_[i].mayBeDropped)
        continue;
      std::vector<std::string> readers;
      for (std::size_t use = 1; use < results_[i].uses.size() && use <= 6; ++use)
        readers.push_back(captured_.nodes[results_[i].uses[use]].name);
      alike[{captured_.nodes[results_[i].maker].name, results_[i].bytes, readers}].push_back(i);
    }
    std::vector<std::vector<std::size_t>> groups;
    for (auto &[key, group] : alike)
      if (group.size() > 1)
        groups.push_back(std::move(group));
    const auto bytes = [&](const std::vector<std::size_t> &group) { return results_[group[0]].bytes * group.size(); };
    std::stable_sort(groups.begin(), groups.end(), [&](const auto &a, const auto &b) { return bytes(a) > bytes(b); });
    return groups;
  }

  /// The group given up in part: quarters from the front, from the back, every other one.
  bool tryParts(const std::vector<std::size_t> &group) {
    bool improves = false;
    for (std::size_t quarters = 0; quarters <= 4; ++quarters) {
      const std::size_t count = (group.size() * quarters + 2) / 4;
      improves = tryPart(group, [&](std::size_t i) { return i < count; }) || improves;
      improves = tryPart(group, [&](std::size_t i) { return i >= group.size() - count; }) || improves;
    }
    return tryPart(group, [](std::size_t i) { return i % 2 == 0; }) || improves;
  }
  template <typename IsDropped> bool tryPart(const std::vector<std::size_t> &group, IsDropped isDropped) {
    Choice choice = choice_;
    for (std::size_t i = 0; i < group.size(); ++i)
      choice.dropped[group[i]] = isDropped(i);
    return choice != choice_ && take(choice);
  }
  bool flip(std::size_t result) {
    Choice choice = choice_;
    choice.dropped[result] = !choice.dropped[result];
    return take(choice);
  }

  /// Takes the choice if it is better than the best so far.
  bool take(const Choice &choice) {
    if (judged_ >= std::max<std::size_t>(options_.judgements, 1)) // the first one is right
      return false;
    ++judged_;
    Lifetimes lifetimes(values_);
    for (std::size_t i = 0; i < results_.size(); ++i)
      for (const ValueIndex value : results_[i].values) {
        lifetimes.kept[value] = choice.kept[i];
        if (choice.dropped[i])
          lifetimes.droppedAfter[value] = lastUse(value, results_[i].uses[results_[i].gapAfter]);
      }
    const std::optional<std::vector<Turn>> turns = sequenceOf(captured_, values_, lifetimes);
    if (!turns)
      return false;
    const double us = bound_.totalUs(*turns) + 1e-3 * bound_.computeUs(*turns); // of equals the one that computes less
    if (us >= bestUs_ * (1 - 1e-6))
      return false;
    bestUs_ = us;
    choice_ = choice;
    best_ = *turns;
    return true;
  }

  NodeIndex lastUse(ValueIndex index, NodeIndex upTo) const {
    const Value &value = values_.values()[index];
    NodeIndex last = value.maker;
    for (const NodeIndex reader : value.readers)
      if (reader <= upTo)
        last = reader;
    return last;
  }

  const Description &captured_;
  const RepetitionOptions &options_;
  const StepValues values_;
  const WindowBound bound_;
  std::vector<double> startUs_; ///< by node, one after the other
  std::vector<Result> results_; ///< large ones
  std::vector<std::size_t> bySize_;
  NodeIndex peak_ = 0;
  std::size_t judged_ = 0;
  double bestUs_ = std::numeric_limits<double>::infinity();
  Choice choice_;
  std::vector<Turn> best_;
};

} // namespace

std::vector<Turn> chooseRepetitions(const Description &captured, const RepetitionOptions &options) {
  return Search(captured, options).run();
}

} // namespace pumpgraph
