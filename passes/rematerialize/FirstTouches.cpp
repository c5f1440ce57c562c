// SPDX-License-Identifier: Apache-2.0
#include "passes/rematerialize/FirstTouches.h"

#include "passes/analysis/Order.h"
#include "passes/rematerialize/StepValues.h"
#include "pumpgraph/graph/Reliance.h"

#include <algorithm>

namespace pumpgraph {

/// By edges of both kinds: programmatic ones order a program's own accesses too, or it would be wrong as captured.
static Order orderOfAccesses(const Description &captured) {
  std::vector<std::vector<NodeIndex>> predecessors(captured.nodes.size());
  for (const Edge &edge : captured.edges)
    predecessors[edge.to].push_back(edge.from);
  Order order;
  for (const std::vector<NodeIndex> &before : predecessors)
    order.append(before);
  return order;
}

void claimFirstTouches(Description &captured) {
  const StepValues values(captured);
  const Order order = orderOfAccesses(captured);
  IndexedVector<AtomIndex, std::vector<NodeIndex>> touching(values.atoms().size());
  for (NodeIndex node = 0; node < captured.nodes.size(); ++node)
    for (const auto touched : {values.operands(node), values.results(node)})
      for (const ValueIndex value : touched)
        touching[values.values()[value].atom].push_back(node);

  const auto isFirst = [&](NodeIndex node, AtomIndex atom) {
    return std::ranges::all_of(touching[atom],
                               [&](NodeIndex other) { return other == node || order.completesBefore(node, other); });
  };
  for (NodeIndex node = 0; node < captured.nodes.size(); ++node)
    for (Access &access : captured.nodes[node].accesses) {
      if (captured.buffers[access.buffer].liveIn || (reliableMay(access) & modeWrite) == 0 ||
          reliableMust(access) == modeWrite)
        continue;
      const std::vector<AtomIndex> atoms = values.atomsIn(access);
      if (!std::ranges::all_of(atoms, [&](AtomIndex atom) { return isFirst(node, atom); }))
        continue;
      access.may |= modeWrite;
      access.must = modeWrite;
      access.evidence = Evidence::Allocated;
    }
}

} // namespace pumpgraph
