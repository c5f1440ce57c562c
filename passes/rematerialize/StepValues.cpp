// SPDX-License-Identifier: Apache-2.0
#include "passes/rematerialize/StepValues.h"

#include "pumpgraph/graph/Reliance.h"

#include <algorithm>
#include <map>

namespace pumpgraph {

StepValues::StepValues(const Description &captured)
    : operands_(captured.nodes.size()), results_(captured.nodes.size()) {
  findAtoms(captured);
  first_ = IndexedVector<AtomIndex, ValueIndex>(atoms_.size());
  IndexedVector<AtomIndex, ValueIndex> now(atoms_.size());
  for (std::uint32_t i = 0; i < atoms_.size(); ++i)
    now[AtomIndex{i}] = first_[AtomIndex{i}] = values_.add({AtomIndex{i}, noMaker, {}, false});

  struct Modes {
    bool reads = false, writes = false, overwrites = false;
  };
  for (NodeIndex node = 0; node < captured.nodes.size(); ++node) {
    std::map<AtomIndex, Modes> touched;
    for (const Access &access : captured.nodes[node].accesses) {
      const std::vector<AtomIndex> &atoms = atomsOf_[access.buffer];
      const auto begin =
          std::lower_bound(atoms.begin(), atoms.end(), access.range.offset,
                           [&](AtomIndex atom, std::uint64_t offset) { return atoms_[atom].range.offset < offset; });
      for (auto atom = begin; atom != atoms.end() && atoms_[*atom].range.offset < access.range.end(); ++atom) {
        Modes &modes = touched[*atom];
        modes.reads = modes.reads || (reliableMay(access) & modeRead) != 0;
        modes.writes = modes.writes || (reliableMay(access) & modeWrite) != 0;
        modes.overwrites = modes.overwrites || reliableMust(access) == modeWrite;
      }
    }
    for (const auto &[atom, modes] : touched)
      if (modes.reads || (modes.writes && !modes.overwrites)) {
        operands_[node].push_back(now[atom]);
        values_[now[atom]].readers.push_back(node);
      }
    for (const auto &[atom, modes] : touched)
      if (modes.writes) {
        now[atom] = values_.add({atom, node, {}, false});
        results_[node].push_back(now[atom]);
      }
  }
  for (std::uint32_t i = 0; i < atoms_.size(); ++i)
    values_[now[AtomIndex{i}]].outlives = captured.buffers[atoms_[AtomIndex{i}].buffer].liveOut;
}

void StepValues::findAtoms(const Description &captured) {
  atomsOf_.resize(captured.buffers.size());
  std::vector<std::vector<Range>> touched(captured.buffers.size());
  for (const Node &node : captured.nodes)
    for (const Access &access : node.accesses)
      touched[access.buffer].push_back(access.range);
  for (BufferIndex buffer = 0; buffer < captured.buffers.size(); ++buffer) {
    std::vector<std::uint64_t> ends;
    for (const Range &range : touched[buffer])
      ends.insert(ends.end(), {range.offset, range.end()});
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    for (std::size_t i = 0; i + 1 < ends.size(); ++i)
      atomsOf_[buffer].push_back(atoms_.add({buffer, {ends[i], ends[i + 1] - ends[i]}}));
  }
}

} // namespace pumpgraph
