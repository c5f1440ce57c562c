// SPDX-License-Identifier: Apache-2.0
// Reads a list of operations as the driver will: streams, records and waits. It shares no code with the lowering.
#include "runtime/streams/IssueList.h"

#include <map>
#include <set>

namespace pumpgraph::runtime {
namespace {

/// The end of a stream's work: what comes next follows it.
struct Front {
  std::set<NodeIndex> nodes;
  bool followsBoundary = false;
};

class Lifting {
public:
  Lifting(const IssueList &list, const Description &lowered, const std::vector<std::uint64_t> &streams)
      : list_(list), lowered_(lowered), streams_(streams) {
    lifted_ = lowered;
    lifted_.nodes.clear();
    lifted_.edges.clear();
  }

  Description run(const Description &round, std::string &error) {
    std::vector<NodeIndex> indexOf;
    std::vector<std::vector<NodeIndex>> into(round.nodes.size());
    for (const Edge &edge : round.edges)
      into[edge.to].push_back(edge.from);
    for (NodeIndex call = 0; call < streams_.size(); ++call) {
      Front &own = calls_[streams_[call]];
      issue(list_.before[call], &own);
      require(own, "call", call);
      for (const NodeIndex from : into[call])
        own.nodes.insert(indexOf[from]);
      indexOf.push_back(add(lowered_.nodes[list_.calls[call]], own));
      issue(list_.after[call], &own);
    }
    issue(list_.before.back(), nullptr);
    requireEnd();
    error = error_;
    return error.empty() ? std::move(lifted_) : Description();
  }

private:
  /// The node follows the front, and is the front from then on.
  NodeIndex add(const Node &node, Front &front) {
    const auto index = static_cast<NodeIndex>(lifted_.nodes.size());
    lifted_.nodes.push_back(node);
    for (const NodeIndex from : front.nodes)
      lifted_.edges.push_back({from, index, EdgeKind::Full});
    front.nodes = {index};
    return index;
  }

  void issue(const std::vector<IssuedOperation> &operations, Front *call) {
    for (const IssuedOperation &operation : operations) {
      if (operation.lane == IssueLane::Call && !call)
        return fault("an operation stands at no call");
      Front &front = operation.lane == IssueLane::Call ? *call : operation.lane == IssueLane::Down ? down_ : up_;
      switch (operation.kind) {
      case IssuedOperation::Kind::Copy:
        require(front, "copy", operation.copy);
        if ((lowered_.nodes[operation.copy].kind == NodeKind::CopyToHost) != (operation.lane == IssueLane::Down))
          fault("a copy is on the other direction's stream");
        add(lowered_.nodes[operation.copy], front);
        break;
      case IssuedOperation::Kind::Record:
        if (operation.event == IssueList::boundary)
          end_ = front;
        else
          events_[operation.event] = front;
        break;
      case IssuedOperation::Kind::Wait:
        wait(operation.event, front);
        break;
      }
    }
  }

  void wait(std::uint32_t event, Front &front) {
    if (event == IssueList::boundary) {
      front.followsBoundary = true;
      return;
    }
    const auto record = events_.find(event);
    if (record == events_.end())
      return fault("a wait for event " + std::to_string(event) + " comes before its record");
    front.nodes.insert(record->second.nodes.begin(), record->second.nodes.end());
    front.followsBoundary |= record->second.followsBoundary;
  }

  void require(const Front &front, const char *what, NodeIndex index) {
    if (!front.followsBoundary)
      fault(std::string(what) + " " + std::to_string(index) + " does not follow the round before");
  }

  /// Every node has to be behind the record of the boundary.
  void requireEnd() {
    std::set<NodeIndex> last;
    for (NodeIndex node = 0; node < lifted_.nodes.size(); ++node)
      last.insert(node);
    for (const Edge &edge : lifted_.edges)
      last.erase(edge.from);
    for (const NodeIndex node : last)
      if (!end_.nodes.contains(node))
        fault("node " + std::to_string(node) + " is not behind the end of its round");
  }

  void fault(const std::string &text) {
    if (error_.empty())
      error_ = text;
  }

  const IssueList &list_;
  const Description &lowered_;
  const std::vector<std::uint64_t> &streams_;
  Description lifted_;
  std::map<std::uint64_t, Front> calls_; ///< by stream
  Front down_, up_, end_;
  std::map<std::uint32_t, Front> events_;
  std::string error_;
};

} // namespace

Description liftIssued(const IssueList &list, const Description &lowered, const Description &round,
                       const std::vector<std::uint64_t> &streams, std::string &error) {
  return Lifting(list, lowered, streams).run(round, error);
}

} // namespace pumpgraph::runtime
