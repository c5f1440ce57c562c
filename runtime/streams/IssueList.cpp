// SPDX-License-Identifier: Apache-2.0
#include "runtime/streams/IssueList.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace pumpgraph::runtime {
namespace {

using Kind = IssuedOperation::Kind;

IssueLane laneOf(const Node &copy) {
  return copy.kind == NodeKind::CopyToHost ? IssueLane::Down : IssueLane::Up;
}

class Lowering {
public:
  Lowering(const Description &lowered, const Description &round, const std::vector<std::uint64_t> &streams)
      : lowered_(lowered), streams_(streams), into_(lowered.nodes.size()), eventOf_(lowered.nodes.size()) {
    std::set<std::pair<std::int32_t, std::int32_t>> own;
    for (const Edge &edge : round.edges)
      own.emplace(edge.from, edge.to);
    for (const Edge &edge : lowered.edges) {
      const std::int32_t from = lowered.nodes[edge.from].captured, to = lowered.nodes[edge.to].captured;
      const bool areCalls = from != notCaptured && to != notCaptured;
      if (!areCalls || (!own.contains({from, to}) && streamOf(from) != streamOf(to)))
        into_[edge.to].push_back(edge.from);
    }
  }

  IssueList run() {
    const std::size_t calls = streams_.size();
    list_.before.resize(calls + 1);
    list_.after.resize(calls);
    nameEvents();
    NodeIndex next = 0; // of the round
    for (NodeIndex index = 0; index < lowered_.nodes.size(); ++index) {
      std::vector<IssuedOperation> &before = list_.before[next];
      if (isCopy(lowered_.nodes[index].kind)) {
        addCopy(index, before);
        continue;
      }
      if (begun_.insert_or_assign(streams_[next], index).second)
        before.push_back({Kind::Wait, IssueLane::Call, IssueList::boundary});
      for (const NodeIndex from : into_[index])
        before.push_back({Kind::Wait, IssueLane::Call, *eventOf_[from]});
      if (eventOf_[index])
        list_.after[next].push_back({Kind::Record, IssueLane::Call, *eventOf_[index]});
      list_.calls.push_back(index);
      ++next;
    }
    end();
    return std::move(list_);
  }

private:
  std::uint64_t streamOf(std::int32_t call) const { return streams_[static_cast<std::size_t>(call)]; }

  /// Events of all nodes that a node on another lane waits for, and of the last ones of streams.
  void nameEvents() {
    const auto name = [&](NodeIndex node) {
      if (!eventOf_[node])
        eventOf_[node] = list_.events++;
    };
    for (const std::vector<NodeIndex> &from : into_)
      std::for_each(from.begin(), from.end(), name);
    std::map<std::uint64_t, NodeIndex> last;
    NodeIndex call = 0;
    for (NodeIndex index = 0; index < lowered_.nodes.size(); ++index)
      if (!isCopy(lowered_.nodes[index].kind))
        last[streams_[call++]] = index;
    for (const auto &[stream, node] : last)
      name(node);
  }

  void addCopy(NodeIndex index, std::vector<IssuedOperation> &operations) {
    const IssueLane lane = laneOf(lowered_.nodes[index]);
    bool &hasBegun = lane == IssueLane::Down ? downHasBegun_ : upHasBegun_;
    if (!std::exchange(hasBegun, true))
      operations.push_back({Kind::Wait, lane, IssueList::boundary});
    for (const NodeIndex from : into_[index])
      if (!isCopy(lowered_.nodes[from].kind) || laneOf(lowered_.nodes[from]) != lane)
        operations.push_back({Kind::Wait, lane, *eventOf_[from]});
    operations.push_back({.kind = Kind::Copy, .lane = lane, .copy = index});
    if (eventOf_[index])
      operations.push_back({Kind::Record, lane, *eventOf_[index]});
  }

  /// All lanes meet on that of the copies down.
  void end() {
    std::vector<IssuedOperation> &operations = list_.before.back();
    if (!downHasBegun_)
      operations.push_back({Kind::Wait, IssueLane::Down, IssueList::boundary});
    if (upHasBegun_) {
      const std::uint32_t event = list_.events++;
      operations.push_back({Kind::Record, IssueLane::Up, event});
      operations.push_back({Kind::Wait, IssueLane::Down, event});
    }
    for (const auto &[stream, last] : begun_)
      operations.push_back({Kind::Wait, IssueLane::Down, *eventOf_[last]});
    operations.push_back({Kind::Record, IssueLane::Down, IssueList::boundary});
  }

  const Description &lowered_;
  const std::vector<std::uint64_t> &streams_;
  std::vector<std::vector<NodeIndex>> into_;          ///< of edges that the round's own calls do not give
  std::vector<std::optional<std::uint32_t>> eventOf_; ///< by node
  std::map<std::uint64_t, NodeIndex> begun_;          ///< streams of calls, and their last node so far
  bool downHasBegun_ = false, upHasBegun_ = false;
  IssueList list_;
};

} // namespace

IssueList lowerStreams(const Description &lowered, const Description &round, const std::vector<std::uint64_t> &streams,
                       std::string &error) {
  std::size_t calls = 0;
  for (const Node &node : lowered.nodes)
    if (!isCopy(node.kind) && node.captured != static_cast<std::int32_t>(calls++))
      error = "the plan has calls in another order, or several times: \"" + node.name + "\"";
  if (error.empty() && calls != streams.size())
    error = "the plan has " + std::to_string(calls) + " of " + std::to_string(streams.size()) + " calls";
  return error.empty() ? Lowering(lowered, round, streams).run() : IssueList();
}

} // namespace pumpgraph::runtime
