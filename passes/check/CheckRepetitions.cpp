// SPDX-License-Identifier: Apache-2.0
// Walks the step in index order, as if memory had no limit, and keeps for every atom which version it would have in the
// captured step and which one it has with the repetitions. Index order is a legal order; what a repetition shares with
// others is ordered by completion, and all else is as the program wished: so the versions are the same in every one.
// That each access finds what was written last, wherever the page has been in between, is for the other rules.
#include "passes/check/CheckRepetitions.h"

#include "passes/check/CompletionOrder.h"
#include "pumpgraph/graph/Reliance.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>

namespace pumpgraph::check {

namespace {

using AtomIndex = std::uint32_t; ///< over all buffers
/// Who wrote an atom last: a node's index, or one of these.
using Version = std::uint32_t;
constexpr Version boundary = UINT32_MAX - 1;
constexpr Version none = UINT32_MAX;

/// Bytes that every access covers or misses.
class Atoms {
public:
  explicit Atoms(const Description &description) : description_(description), ends_(description.buffers.size()) {
    for (const Node &node : description.nodes)
      for (const Access &access : node.accesses)
        for (const std::uint64_t end : {access.range.offset, access.range.end()})
          ends_[root(access.buffer)].push_back(end);
    for (std::vector<std::uint64_t> &ends : ends_) {
      std::sort(ends.begin(), ends.end());
      ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
      first_.push_back(count_);
      count_ += static_cast<AtomIndex>(ends.size());
    }
  }

  AtomIndex count() const { return count_; }
  AtomIndex begin(const Access &access) const { return at(access, access.range.offset); }
  AtomIndex end(const Access &access) const { return at(access, access.range.end()); }

  BufferIndex buffer(AtomIndex atom) const {
    const auto after = std::upper_bound(first_.begin(), first_.end(), atom); // some buffers have none
    return static_cast<BufferIndex>(after - first_.begin() - 1);
  }
  Range range(AtomIndex atom) const {
    const BufferIndex owner = buffer(atom);
    const std::uint64_t *begin = &ends_[owner][atom - first_[owner]];
    return {*begin, *(begin + 1) - *begin};
  }

private:
  /// At all of its addresses it is one buffer.
  BufferIndex root(BufferIndex buffer) const { return capturedBuffer(description_.buffers, buffer); }
  AtomIndex at(const Access &access, std::uint64_t offset) const {
    const BufferIndex owner = root(access.buffer);
    const std::vector<std::uint64_t> &ends = ends_[owner];
    return first_[owner] + static_cast<AtomIndex>(std::lower_bound(ends.begin(), ends.end(), offset) - ends.begin());
  }

  const Description &description_;
  std::vector<std::vector<std::uint64_t>> ends_; ///< by captured buffer: where its atoms begin, and where the last ends
  std::vector<AtomIndex> first_;                 ///< by captured buffer
  AtomIndex count_ = 0;
};

/// What a node needs of an atom.
struct Operand {
  AtomIndex atom = 0;
  Version version = none;
};

/// Which of a captured node's accesses are meant: a repetition has none that is aside.
enum class Of { Node, Repetition };

bool isOf(Of of, const Access &access) {
  return of == Of::Node || !access.isAside;
}

/// A node's touch of an atom.
struct Touch {
  AtomIndex atom = 0;
  NodeIndex node = 0;
  bool writes = false;

  friend bool operator<(const Touch &left, const Touch &right) {
    return std::tie(left.atom, left.node) < std::tie(right.atom, right.node);
  }
};

class Walk {
public:
  Walk(const Description &description, Report &report)
      : description_(description), report_(report), atoms_(description), captured_(atoms_.count(), none) {
    for (AtomIndex atom = 0; atom < atoms_.count(); ++atom)
      if (description.buffers[atoms_.buffer(atom)].liveIn)
        captured_[atom] = boundary;
    found_ = captured_;
    for (const Node &node : description.nodes)
      if (node.kind == NodeKind::Rematerialize)
        operands_.try_emplace(node.repeats);
  }

  void run() {
    for (NodeIndex index = 0; index < description_.nodes.size() && !report_.full(); ++index) {
      const Node &node = description_.nodes[index];
      if (node.kind == NodeKind::Rematerialize)
        repeat(index);
      else if (!isAdded(node.kind))
        pass(index);
    }
    checkEnd();
    checkOrder();
  }

private:
  std::string label(NodeIndex node) const { return nodeLabel(description_, node); }
  std::string atomLabel(AtomIndex atom, BufferIndex buffer) const {
    return fmt::format("{} of \"{}\"", rangeLabel(atoms_.range(atom)), description_.buffers[buffer].name);
  }
  std::string versionLabel(Version version) const {
    if (version == none)
      return "no value";
    return version == boundary ? "the value that it has before the step"
                               : "the value that " + label(version) + " leaves";
  }

  /// Atoms that a captured node, or a repetition of it, may read, or may write and does not certainly overwrite, as
  /// they are in the captured step now.
  std::vector<Operand> operandsOf(const Node &node, Of of) const {
    std::vector<AtomIndex> needed;
    for (const Access &access : node.accesses)
      if (isOf(of, access) && reliableMust(access) != modeWrite)
        for (AtomIndex atom = atoms_.begin(access); atom < atoms_.end(access); ++atom)
          needed.push_back(atom);
    std::sort(needed.begin(), needed.end());
    needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
    std::vector<Operand> operands;
    for (const AtomIndex atom : needed)
      operands.push_back({atom, captured_[atom]});
    return operands;
  }

  template <typename Visit> void forEachWritten(const Node &node, Visit visit) const {
    for (const Access &access : node.accesses)
      if ((reliableMay(access) & modeWrite) != 0)
        for (AtomIndex atom = atoms_.begin(access); atom < atoms_.end(access); ++atom)
          visit(atom);
  }

  /// Whether it finds its operands.
  bool require(NodeIndex index, std::span<const Operand> operands) {
    bool finds = true;
    for (const auto &[atom, version] : operands) {
      if (version == none || found_[atom] == version)
        continue;
      const BufferIndex buffer = atoms_.buffer(atom);
      report_.add({.rule = "version", .node = index, .buffer = buffer},
                  fmt::format("{} needs of {} {}, but finds {}", label(index), atomLabel(atom, buffer),
                              versionLabel(version), versionLabel(found_[atom])));
      finds = false;
    }
    return finds;
  }

  /// A captured node.
  void pass(NodeIndex index) {
    const Node &node = description_.nodes[index];
    const auto wanted = node.captured == notCaptured ? operands_.end() : operands_.find(node.captured);
    if (wanted != operands_.end())
      wanted->second = operandsOf(node, Of::Repetition);
    const std::vector<Operand> operands = operandsOf(node, Of::Node);
    if (!require(index, operands)) // one report is enough
      for (const auto &[atom, version] : operands)
        found_[atom] = version;
    forEachWritten(node, [&](AtomIndex atom) { captured_[atom] = found_[atom] = index; });
    if (node.captured == notCaptured)
      return;
    original_[node.captured] = index;
  }

  void repeat(NodeIndex index) {
    const Node &node = description_.nodes[index];
    const auto found = original_.find(node.repeats);
    const auto fail = [&](const char *rule, std::string message) {
      report_.add({.rule = rule, .node = index}, std::move(message));
    };
    if (node.captured != notCaptured || found == original_.end())
      return fail("repeats", fmt::format("{} repeats captured node {}, which does not come before it", label(index),
                                         node.repeats));
    const Node &original = description_.nodes[found->second];
    if (!original.isPure || !isRepeatable(original.kind))
      return fail("pure",
                  fmt::format("{} repeats {}, which is not known to be pure", label(index), label(found->second)));
    if (accessBesideOneAside(original.accesses) < original.accesses.size())
      return fail("aside",
                  fmt::format("{} repeats {}, some of whose accesses are aside and others of the same bytes are not",
                              label(index), label(found->second)));
    if (node.name != original.name || keysOf(node, Of::Node) != keysOf(original, Of::Repetition))
      return fail("repeats", fmt::format("{} repeats {}, but has another name or other accesses", label(index),
                                         label(found->second)));
    require(index, operands_.at(node.repeats));
    forEachWritten(node, [&](AtomIndex atom) {
      found_[atom] = found->second;
      const BufferIndex buffer = atoms_.buffer(atom);
      const Buffer &written = description_.buffers[buffer];
      if (!written.isPrivate || written.liveIn || written.liveOut)
        report_.add({.rule = "lasting", .node = index, .buffer = buffer},
                    fmt::format("{} writes \"{}\", which {}", label(index), written.name,
                                written.isPrivate ? "outlives the step" : "is not private"));
    });
  }

  /// What the rules make of a node's accesses, in an order that does not depend on how they were found, nor at which
  /// address.
  std::vector<std::tuple<BufferIndex, std::uint64_t, std::uint64_t, std::uint8_t, std::uint8_t, bool>>
  keysOf(const Node &node, Of of) const {
    std::vector<std::tuple<BufferIndex, std::uint64_t, std::uint64_t, std::uint8_t, std::uint8_t, bool>> keys;
    for (const Access &access : node.accesses)
      if (isOf(of, access))
        keys.emplace_back(capturedBuffer(description_.buffers, access.buffer), access.range.offset, access.range.size,
                          reliableMay(access), reliableMust(access), access.isAside);
    std::sort(keys.begin(), keys.end());
    return keys;
  }

  void checkEnd() {
    for (AtomIndex atom = 0; atom < atoms_.count() && !report_.full(); ++atom) {
      const BufferIndex buffer = atoms_.buffer(atom);
      if (!description_.buffers[buffer].liveOut || captured_[atom] == none || captured_[atom] == found_[atom])
        continue;
      report_.add({.rule = "version", .buffer = buffer},
                  fmt::format("at the end of the step {} must have {}, but has {}", atomLabel(atom, buffer),
                              versionLabel(captured_[atom]), versionLabel(found_[atom])));
    }
  }

  /// Programmatic edges order nothing for a repetition, and its conflicts with others are not the program's.
  void checkOrder() {
    for (const Edge &edge : description_.edges)
      if (edge.kind == EdgeKind::Programmatic)
        for (const NodeIndex end : {edge.from, edge.to})
          if (description_.nodes[end].kind == NodeKind::Rematerialize)
            report_.add({.rule = "edge", .node = end},
                        fmt::format("{} has a programmatic edge, but is run again", label(end)));

    std::vector<Touch> touches;
    for (NodeIndex index = 0; index < description_.nodes.size(); ++index)
      for (const Access &access : description_.nodes[index].accesses)
        for (AtomIndex atom = atoms_.begin(access); atom < atoms_.end(access); ++atom)
          touches.push_back({atom, index, (reliableMay(access) & modeWrite) != 0});
    std::sort(touches.begin(), touches.end());
    const CompletionOrder completion(description_, CompletionOrder::Follow::Full);
    const auto isRepetition = [&](const Touch &touch) {
      return description_.nodes[touch.node].kind == NodeKind::Rematerialize;
    };
    for (auto begin = touches.begin(); begin != touches.end();) {
      const auto end =
          std::find_if(begin, touches.end(), [&](const Touch &other) { return other.atom != begin->atom; });
      const bool isRepeated = std::any_of(begin, end, isRepetition);
      for (auto left = begin; isRepeated && left != end; ++left)
        for (auto right = left + 1; right != end; ++right)
          if ((isRepetition(*left) || isRepetition(*right)) && (left->writes || right->writes) &&
              left->node != right->node && !completion.before(left->node, right->node)) {
            const BufferIndex buffer = atoms_.buffer(left->atom);
            report_.add({.rule = "race", .node = right->node, .otherNode = left->node, .buffer = buffer},
                        fmt::format("{} and {} race on {}: no path of full edges orders them", label(left->node),
                                    label(right->node), atomLabel(left->atom, buffer)));
          }
      begin = end;
    }
  }

  const Description &description_;
  Report &report_;
  Atoms atoms_;
  std::vector<Version> captured_; ///< by atom: in the captured step
  std::vector<Version> found_;    ///< by atom: with the repetitions
  std::unordered_map<std::int32_t, NodeIndex> original_;
  std::unordered_map<std::int32_t, std::vector<Operand>> operands_; ///< of what is repeated, by captured position
};

} // namespace

void checkRepetitions(const Description &description, Report &report) {
  if (std::any_of(description.nodes.begin(), description.nodes.end(),
                  [](const Node &node) { return node.kind == NodeKind::Rematerialize; }))
    Walk(description, report).run();
}

} // namespace pumpgraph::check
