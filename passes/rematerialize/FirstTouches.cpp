// SPDX-License-Identifier: Apache-2.0
#include "passes/rematerialize/FirstTouches.h"

#include "passes/analysis/Order.h"
#include "passes/rematerialize/StepValues.h"
#include "pumpgraph/graph/Reliance.h"

#include <algorithm>

namespace pumpgraph {

void claimFirstTouches(Description &captured) {
  const StepValues values(captured);
  const Order order(captured);
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
