// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/Tenancies.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace pumpgraph::runtime {

Tenancies::Tenancies(const LiftedGraph &graph, const Heap &heap) : graph_(graph), heap_(heap) {
  std::unordered_map<CUgraphNode, std::int64_t> positions;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    positions.emplace(graph.nodes[i].handle, static_cast<std::int64_t>(i));
  for (const Hit &hit : heap.captured()) {
    const Block &block = heap.block(hit.block);
    if (block.shared || block.members.size() == 1 || before_.contains(block.id))
      continue;
    std::vector<std::int64_t> &before = before_[block.id];
    for (const Allocation &member : block.members) {
      std::int64_t last = -1;
      for (const CUgraphNode node : member.after)
        if (const auto found = positions.find(node); found != positions.end())
          last = std::max(last, found->second);
      before.push_back(last);
    }
  }
  if (before_.empty())
    return;
  leaving_.resize(graph.nodes.size());
  for (std::uint32_t e = 0; e < graph.edges.size(); ++e)
    leaving_[graph.edges[e].from].push_back(e);
}

Hit Tenancies::at(std::size_t position, Hit hit) const {
  const auto found = before_.find(hit.block);
  if (found == before_.end())
    return hit;
  const std::vector<std::int64_t> &before = found->second;
  hit.member = before.size() - 1;
  while (hit.member > 0 && static_cast<std::int64_t>(position) <= before[hit.member])
    --hit.member;
  return hit;
}

bool Tenancies::leadsToAll(NodeIndex from, std::span<const NodeIndex> to, bool fullEdgesOnly) const {
  std::set<NodeIndex> open = {from};
  std::size_t found = 0;
  while (!open.empty() && found < to.size()) {
    const NodeIndex node = *open.begin(); // the smallest: no edge leads back to it
    open.erase(open.begin());
    if (node > to[found])
      return false;
    found += node == to[found] ? 1 : 0;
    for (const std::uint32_t e : leaving_[node])
      if (graph_.edges[e].kind == EdgeKind::Full || !fullEdgesOnly)
        open.insert(graph_.edges[e].to);
  }
  return found == to.size();
}

std::string Tenancies::conflictBetween(const Block &block, std::span<const NodeIndex> earlier,
                                       std::span<const NodeIndex> later, std::size_t member) const {
  for (const NodeIndex node : earlier)
    if (!leadsToAll(node, later, false)) {
      const std::size_t before = at(node, {block.id, 0, 0}).member;
      return fmt::format("\"{}\" got the memory of \"{}\", which was freed on its stream, but node {} \"{}\", which "
                         "uses the latter, is not before all nodes that use the former: free memory on the stream "
                         "that uses it last, or after joining the stream that does",
                         nameOf(block.members[member]), nameOf(block.members[before]), node, graph_.nodes[node].name);
    }
  return {};
}

Tenancies::Findings Tenancies::findingsOf(BlockId id, std::span<const NodeIndex> uses) const {
  Findings findings;
  if (!before_.contains(id))
    return findings;
  const Block &block = heap_.block(id);
  // Uses since the last one that is known to be between all before it and all after it.
  std::size_t since = 0;
  for (std::size_t begin = 0; begin < uses.size();) {
    const std::size_t member = at(uses[begin], {id, 0, 0}).member;
    std::size_t end = begin + 1;
    while (end < uses.size() && at(uses[end], {id, 0, 0}).member == member)
      ++end;
    const std::span<const NodeIndex> earlier = uses.subspan(since, begin - since),
                                     own = uses.subspan(begin, end - begin);
    const bool isFirst = leadsToAll(own.front(), own.subspan(1), true) &&
                         std::all_of(earlier.begin(), earlier.end(),
                                     [&](NodeIndex node) { return leadsToAll(node, own.first(1), true); });
    if (begin != 0 && isFirst)
      findings.firsts.push_back(own.front());
    if (isFirst)
      since = begin;
    else if (findings.conflict.empty())
      findings.conflict = conflictBetween(block, earlier, own, member);
    begin = end;
  }
  return findings;
}

} // namespace pumpgraph::runtime
