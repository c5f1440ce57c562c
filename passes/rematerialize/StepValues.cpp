// SPDX-License-Identifier: Apache-2.0
#include "passes/rematerialize/StepValues.h"

#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <map>

namespace pumpgraph {

StepValues::StepValues(const Description &captured)
    : operands_(captured.nodes.size()), results_(captured.nodes.size()), operandsAgain_(captured.nodes.size()),
      resultsAgain_(captured.nodes.size()) {
  findAtoms(captured);
  first_ = IndexedVector<AtomIndex, ValueIndex>(atoms_.size());
  for (std::uint32_t i = 0; i < atoms_.size(); ++i)
    first_[AtomIndex{i}] = values_.add({AtomIndex{i}, noMaker, {}});
  IndexedVector<AtomIndex, ValueIndex> now = first_;

  struct Modes {
    bool finds = false, writes = false, isAside = false;
  };
  for (NodeIndex node = 0; node < captured.nodes.size(); ++node) {
    std::map<AtomIndex, Modes> touched;
    for (const Access &access : captured.nodes[node].accesses)
      for (const AtomIndex atom : atomsIn(access)) {
        Modes &modes = touched[atom];
        modes.isAside = access.isAside; // as all accesses of these bytes are
        modes.finds = modes.finds || reliableMust(access) != modeWrite;
        modes.writes = modes.writes || (reliableMay(access) & modeWrite) != 0;
      }
    for (const auto &[atom, modes] : touched)
      if (modes.finds) {
        operands_[node].push_back(now[atom]);
        values_[now[atom]].readers.push_back(node);
        if (!modes.isAside)
          operandsAgain_[node].push_back(now[atom]);
      }
    for (const auto &[atom, modes] : touched)
      if (modes.writes) {
        now[atom] = values_.add({.atom = atom, .maker = node, .readers = {}, .isAside = modes.isAside});
        results_[node].push_back(now[atom]);
        if (!modes.isAside)
          resultsAgain_[node].push_back(now[atom]);
      }
  }
  for (NodeIndex node = 0; node < captured.nodes.size(); ++node)
    mayRunAgain_.push_back(captured.nodes[node].isPure && isRepeatable(captured.nodes[node].kind) &&
                           std::ranges::all_of(resultsAgain_[node], [&](ValueIndex result) {
                             const Buffer &written = captured.buffers[buffer(result)];
                             return written.isPrivate && !written.liveIn && !written.liveOut;
                           }));
  for (std::uint32_t i = 0; i < atoms_.size(); ++i)
    values_[now[AtomIndex{i}]].outlives = captured.buffers[atoms_[AtomIndex{i}].buffer].liveOut;
}

std::vector<AtomIndex> StepValues::atomsIn(const Access &access) const {
  const std::vector<AtomIndex> &atoms = atomsOf_[access.buffer];
  const auto at = [&](std::uint64_t offset) {
    return std::lower_bound(atoms.begin(), atoms.end(), offset,
                            [&](AtomIndex atom, std::uint64_t wanted) { return atoms_[atom].range.offset < wanted; });
  };
  return {at(access.range.offset), at(access.range.end())};
}

void StepValues::findAtoms(const Description &captured) {
  atomsOf_.resize(captured.buffers.size());
  std::vector<std::vector<std::uint64_t>> ends(captured.buffers.size());
  for (const Node &node : captured.nodes)
    for (const Access &access : node.accesses)
      ends[access.buffer].insert(ends[access.buffer].end(), {access.range.offset, access.range.end()});
  for (BufferIndex buffer = 0; buffer < captured.buffers.size(); ++buffer) {
    std::sort(ends[buffer].begin(), ends[buffer].end());
    ends[buffer].erase(std::unique(ends[buffer].begin(), ends[buffer].end()), ends[buffer].end());
    for (std::size_t i = 0; i + 1 < ends[buffer].size(); ++i)
      atomsOf_[buffer].push_back(atoms_.add({buffer, {ends[buffer][i], ends[buffer][i + 1] - ends[buffer][i]}}));
  }
}

} // namespace pumpgraph
