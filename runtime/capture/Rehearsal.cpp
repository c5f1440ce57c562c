// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/Rehearsal.h"

#include <algorithm>
#include <cstring>

namespace pumpgraph::runtime {

std::set<Member> declaredReads(const Heap &heap, const DeclaredReads &declared, CUgraphNode node) {
  std::set<Member> members;
  if (const auto reads = declared.find(node); reads != declared.end())
    for (const CUdeviceptr pointer : reads->second)
      if (const std::optional<Hit> hit = heap.find(pointer))
        members.emplace(hit->block, hit->member);
  return members;
}

CaptureAllocations::CaptureAllocations(const Heap &heap) {
  for (const Hit &allocation : heap.captured())
    members_.emplace(allocation.block, allocation.member);
}

Rehearsal::Rehearsal(const LiftedGraph &graph, const Heap &heap, const NodeDeclarations &declarations) {
  for (const Hit &hit : heap.captured()) {
    const Allocation &allocation = heap.block(hit.block).members[hit.member];
    allocations_.push_back({allocation.size, allocation.live});
  }
  const CaptureAllocations own(heap);
  for (const LiftedNode &lifted : graph.nodes) {
    Node &node = nodes_.emplace_back(Node{lifted.kind, lifted.name, {}, {}, lifted.launches});
    if (const auto label = declarations.labels().find(lifted.handle); label != declarations.labels().end())
      node.label = label->second;
    const std::set<Member> read = declaredReads(heap, declarations.reads(), lifted.handle);
    for (const PointerWord &word : lifted.words) {
      const std::optional<Hit> hit = heap.find(word.value);
      node.words.emplace(placeOf(word), Word{word.value, hit ? hit->offset : 0, hit && own.contains(*hit),
                                             hit && read.contains({hit->block, hit->member}),
                                             hit ? heap.block(hit->block).members[hit->member].name : ""});
    }
  }
}

bool Rehearsal::matches(const LiftedGraph &graph) const {
  return std::equal(graph.nodes.begin(), graph.nodes.end(), nodes_.begin(), nodes_.end(),
                    [](const LiftedNode &a, const Node &b) { return a.kind == b.kind && a.name == b.name; });
}

const Rehearsal::Word *Rehearsal::find(std::size_t node, const PointerWord &word) const {
  const auto found = nodes_[node].words.find(placeOf(word));
  return found == nodes_[node].words.end() ? nullptr : &found->second;
}

bool Rehearsal::refutes(std::size_t node, const PointerWord &word, const Hit &hit,
                        const CaptureAllocations &second) const {
  if (!second.contains(hit)) // an allocation that has not moved says nothing about words that have not
    return false;
  const Word *before = find(node, word);
  if (before)
    return before->value == word.value && !before->leadsToOurs;
  // An address of nothing at all in the first capture is none either, where both had as many buffers to point at.
  return second.count() == allocations_.size();
}

bool Rehearsal::hasMoved(std::size_t node, const PointerWord &word, const Hit &hit) const {
  const Word *before = find(node, word);
  return before && before->leadsToOurs && before->value != word.value && before->offset == hit.offset;
}

bool Rehearsal::isLaunchedAlikeBut(std::size_t node, const LiftedNode &now,
                                   const std::vector<PointerWord> &words) const {
  std::vector<KernelLaunch> launches = nodes_[node].launches;
  for (const PointerWord &word : words) {
    const auto launch = std::find_if(launches.begin(), launches.end(),
                                     [&](const KernelLaunch &each) { return each.inner == word.inner; });
    if (launch == launches.end() || launch->parameter(word.parameter).size() < word.offset + sizeof word.value)
      return false;
    std::memcpy(launch->bytes.data() + launch->beginOf(word.parameter) + word.offset, &word.value, sizeof word.value);
  }
  return launches == now.launches;
}

bool Rehearsal::isDeclaredRead(std::size_t node, const PointerWord &word) const {
  const Word *before = find(node, word);
  return before && before->isDeclaredRead;
}

const std::string &Rehearsal::nameOf(std::size_t node, const PointerWord &word) const {
  static const std::string none;
  const Word *before = find(node, word);
  return before ? before->name : none;
}

} // namespace pumpgraph::runtime
