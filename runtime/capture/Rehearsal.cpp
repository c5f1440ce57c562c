// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/Rehearsal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>

namespace pumpgraph::runtime {

namespace {

/// Tells its groups of arithmetic from those of the second capture.
constexpr std::uint32_t rehearsedGroup = std::uint32_t{1} << 31;

/// Where something was in the first capture and is in the second: an address, or the distance between two.
struct Move {
  std::uint64_t from = 0, to = 0;
};

template <typename Number> std::uint64_t numberAt(std::span<const char> bytes, std::size_t offset) {
  Number number = 0;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

/// How far `to` is from `from`, bytes, whatever the upper 16 bits: some keep a tag there.
std::int64_t distance(std::uint64_t from, std::uint64_t to) {
  constexpr int tagBits = 16;
  return static_cast<std::int64_t>((to - from) << tagBits) >> tagBits;
}

/// Whether a number that was `before` and is `after` may be one of the moves, counted in units of 1 byte to a page:
/// both lead near where it leads, and differ by as much.
bool isAlike(std::uint64_t before, std::uint64_t after, const std::vector<Move> &moves) {
  constexpr std::int64_t near = std::int64_t{1} << 32;
  if (before == after)
    return false;
  for (std::uint64_t unit = 1; unit <= pageBytes; unit *= 2)
    for (const Move &move : moves) {
      const std::int64_t was = distance(move.from, before * unit), is = distance(move.to, after * unit);
      if (std::abs(was) < near && std::abs(is) < near && std::abs(is - was) < static_cast<std::int64_t>(2 * unit))
        return true;
    }
  return false;
}

/// Whether that is so of a number of four or eight bytes, at a multiple of four.
bool holdsMove(std::span<const char> before, std::span<const char> after, const std::vector<Move> &moves) {
  constexpr std::size_t half = sizeof(std::uint32_t);
  for (std::size_t offset = 0; offset + half <= before.size(); offset += half) {
    if (isAlike(numberAt<std::uint32_t>(before, offset), numberAt<std::uint32_t>(after, offset), moves))
      return true;
    if (offset + 2 * half <= before.size() &&
        isAlike(numberAt<std::uint64_t>(before, offset), numberAt<std::uint64_t>(after, offset), moves))
      return true;
  }
  return false;
}

} // namespace

DeclaredAccesses::DeclaredAccesses(const Heap &heap, const NodeDeclarations &declarations, CUgraphNode node) {
  const auto membersOf = [&](const DeclaredPointers &declared) -> std::optional<std::set<Member>> {
    const auto pointers = declared.find(node);
    if (pointers == declared.end())
      return std::nullopt;
    std::set<Member> members;
    for (const CUdeviceptr pointer : pointers->second)
      if (const std::optional<Hit> hit = heap.find(pointer))
        members.emplace(hit->block, hit->member);
    return members;
  };
  reads_ = membersOf(declarations.reads()).value_or(std::set<Member>());
  asides_ = membersOf(declarations.asides()).value_or(std::set<Member>());
  writes_ = membersOf(declarations.writes());
  if (const auto extents = declarations.extents().find(node); extents != declarations.extents().end())
    for (const DeclaredExtent &extent : extents->second)
      if (const std::optional<Hit> hit = heap.find(extent.begin))
        extents_[{hit->block, hit->member}].push_back(
            {heap.block(hit->block).members[hit->member].offset + static_cast<std::uint64_t>(hit->offset),
             extent.bytes});
}

std::vector<Range> DeclaredAccesses::extentsOf(const Hit &hit) const {
  const auto declared = extents_.find({hit.block, hit.member});
  if (declared == extents_.end())
    return {};
  std::vector<Range> ranges = declared->second, apart;
  std::sort(ranges.begin(), ranges.end(), [](const Range &a, const Range &b) { return a.offset < b.offset; });
  for (const Range &range : ranges)
    if (!apart.empty() && range.offset <= apart.back().end())
      apart.back().size = std::max(apart.back().end(), range.end()) - apart.back().offset;
    else
      apart.push_back(range);
  return apart;
}

bool isOfTheProgram(const Allocation &allocation) {
  constexpr std::uint64_t generatorBytes = 8; // PyTorch has seed and offset in an allocation each
  return allocation.declaredPrivate || allocation.size <= generatorBytes;
}

CaptureAllocations::CaptureAllocations(const Heap &heap) {
  for (const Hit &allocation : heap.captured()) {
    members_.emplace(allocation.block, allocation.member);
    sizes_.push_back(heap.block(allocation.block).members[allocation.member].size);
  }
}

Rehearsal::Rehearsal(const LiftedGraph &graph, const Heap &heap, const NodeDeclarations &declarations) {
  for (const Hit &hit : heap.captured()) {
    const Allocation &allocation = heap.block(hit.block).members[hit.member];
    allocations_.push_back({allocation.size, allocation.live});
  }
  const CaptureAllocations own(heap);
  for (const LiftedNode &lifted : graph.nodes) {
    Node &node = nodes_.emplace_back();
    node.kind = lifted.kind;
    node.name = lifted.name;
    if (lifted.kind == NodeKind::Kernel && lifted.launches.size() == 1)
      node.launch = lifted.launches.front();
    if (const auto label = declarations.labels().find(lifted.handle); label != declarations.labels().end())
      node.label = label->second;
    if (const auto operation = declarations.operations().find(lifted.handle);
        operation != declarations.operations().end())
      node.operation = operation->second;
    if (const auto arithmetic = declarations.arithmetics().find(lifted.handle);
        arithmetic != declarations.arithmetics().end())
      node.arithmetic = {arithmetic->second.group | rehearsedGroup, arithmetic->second.us};
    for (const TouchedSpan &span : lifted.spans) {
      const std::optional<Hit> hit = heap.find(span.address);
      node.spans.push_back(hit ? Span{Member(hit->block, hit->member), hit->offset} : Span{});
    }
    const auto addReach = [&](const std::vector<CUdeviceptr> &pointers, bool isWritten) {
      for (const CUdeviceptr pointer : pointers)
        if (const std::optional<Hit> hit = heap.find(pointer))
          node.reach.push_back({pointer, {hit->block, hit->member}, own.contains(*hit), isWritten});
    };
    if (const auto reach = declarations.reaches().find(lifted.handle); reach != declarations.reaches().end()) {
      addReach(reach->second.read, false);
      addReach(reach->second.written, true);
    }
    const DeclaredAccesses declared(heap, declarations, lifted.handle);
    for (const PointerWord &word : lifted.words) {
      const std::optional<Hit> hit = heap.find(word.value);
      node.words.emplace(placeOf(word), Word{word.value, hit ? hit->offset : 0,
                                             hit ? std::optional(Member(hit->block, hit->member)) : std::nullopt,
                                             hit && own.contains(*hit), hit && declared.isRead(*hit),
                                             hit && declared.isAside(*hit), hit && declared.isNotWritten(*hit, own),
                                             hit ? heap.block(hit->block).members[hit->member].name : ""});
    }
  }
}

void Rehearsal::forgetNodesBeside(const LiftedGraph &graph) {
  if (matches(graph))
    return;
  // A node has one place among the rehearsal's if it is the same for the first way to find all, and for the last.
  std::vector<std::size_t> first, last;
  for (std::size_t place = 0; place < nodes_.size() && first.size() < graph.nodes.size(); ++place)
    if (areAlike(graph.nodes[first.size()], nodes_[place]))
      first.push_back(place);
  for (std::size_t place = nodes_.size(); place > 0 && last.size() < graph.nodes.size(); --place)
    if (areAlike(graph.nodes[graph.nodes.size() - 1 - last.size()], nodes_[place - 1]))
      last.push_back(place - 1);
  if (first.size() != graph.nodes.size() || last.size() != graph.nodes.size())
    return;
  std::reverse(last.begin(), last.end());
  std::vector<Node> kept;
  std::set<std::size_t> places;
  for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
    if (first[node] == last[node]) {
      kept.push_back(nodes_[*places.insert(first[node]).first]);
      continue;
    }
    Node &unknown = kept.emplace_back();
    unknown.kind = graph.nodes[node].kind;
    unknown.name = graph.nodes[node].name;
    unknown.isKnown = false;
  }
  std::set<std::uint32_t> changed; // operations
  for (std::size_t place = 0; place < nodes_.size(); ++place)
    if (!places.contains(place))
      changed.insert(nodes_[place].operation.number);
  for (Node &node : kept)
    if (changed.contains(node.operation.number))
      node.operation = {};
  forgotten_ += nodes_.size() - kept.size();
  nodes_ = std::move(kept);
}

bool Rehearsal::isLike(const LiftedGraph &graph) const {
  if (graph.nodes.size() != nodes_.size())
    return false;
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    const auto isOther = [&](const PointerWord &word) {
      const Word *before = word.plain && word.inner == 0 ? find(node, word) : nullptr;
      return before && !before->leadsToOurs && before->value != word.value;
    };
    const std::vector<PointerWord> &words = graph.nodes[node].words;
    if (!areAlike(graph.nodes[node], nodes_[node]) || std::any_of(words.begin(), words.end(), isOther))
      return false;
  }
  return true;
}

bool Rehearsal::areAlike(const LiftedNode &now, const Node &before) {
  if (now.kind != before.kind || now.name != before.name)
    return false;
  if (!before.launch || now.launches.size() != 1)
    return true;
  const KernelLaunch &launch = now.launches.front();
  return launch.grid == before.launch->grid && launch.block == before.launch->block &&
         launch.ends == before.launch->ends;
}

std::string Rehearsal::differenceTo(const LiftedGraph &graph) const {
  const auto [now, before] =
      std::mismatch(graph.nodes.begin(), graph.nodes.end(), nodes_.begin(), nodes_.end(),
                    [](const LiftedNode &a, const Node &b) { return a.kind == b.kind && a.name == b.name; });
  if (now != graph.nodes.end() && before != nodes_.end())
    return fmt::format("node {}, \"{}\", is \"{}\" there", now - graph.nodes.begin(), now->name, before->name);
  if (graph.nodes.size() == nodes_.size())
    return {};
  return fmt::format("{} nodes, {} there", graph.nodes.size(), nodes_.size());
}

const Rehearsal::Word *Rehearsal::find(std::size_t node, const PointerWord &word) const {
  const auto found = nodes_[node].words.find(placeOf(word));
  return found == nodes_[node].words.end() ? nullptr : &found->second;
}

bool Rehearsal::refutes(std::size_t node, const PointerWord &word, const Hit &hit,
                        const CaptureAllocations &second) const {
  // An allocation that has not moved says nothing about words that have not.
  if (!second.contains(hit) || !nodes_[node].isKnown)
    return false;
  const Word *before = find(node, word);
  if (before)
    return before->value == word.value && !before->leadsToOurs;
  // An address of nothing at all in the first capture is none either, where both had as many buffers to point at.
  return hasAllocationsOf(second);
}

/// That is, all of them in their order, with others between if nodes have been forgotten.
bool Rehearsal::hasAllocationsOf(const CaptureAllocations &second) const {
  const std::vector<std::uint64_t> &sizes = second.sizes();
  if (sizes.size() > allocations_.size() || allocations_.size() - sizes.size() > forgotten_)
    return false;
  std::size_t found = 0;
  for (std::size_t first = 0; first < allocations_.size() && found < sizes.size(); ++first)
    found += allocations_[first].size == sizes[found] ? 1 : 0;
  return found == sizes.size();
}

bool Rehearsal::hasMoved(std::size_t node, const PointerWord &word, const Hit &hit) const {
  const Word *before = find(node, word);
  return before && before->leadsToOurs && before->value != word.value && before->offset == hit.offset;
}

bool Rehearsal::hasMovedInAnotherForm(std::size_t node, const LiftedNode &now,
                                      const std::vector<PointerWord> &words) const {
  if (!nodes_[node].launch || now.launches.size() != 1)
    return true;
  KernelLaunch before = *nodes_[node].launch;
  const KernelLaunch &after = now.launches.front();
  if (before.ends != after.ends)
    return true;
  std::vector<Move> moves;
  for (const PointerWord &word : words) {
    moves.push_back({find(node, word)->value, word.value});
    std::memcpy(before.bytes.data() + before.beginOf(word.parameter) + word.offset, &word.value, sizeof word.value);
  }
  for (std::size_t one = 0, count = moves.size(); one < count; ++one)
    for (std::size_t other = 0; other < count; ++other)
      if (const Move apart{moves[one].from - moves[other].from, moves[one].to - moves[other].to};
          apart.from != apart.to)
        moves.push_back(apart);
  for (std::size_t parameter = 0; parameter < before.ends.size(); ++parameter)
    if (holdsMove(before.parameter(parameter), after.parameter(parameter), moves))
      return true;
  return false;
}

bool Rehearsal::isDeclaredRead(std::size_t node, const PointerWord &word) const {
  const Word *before = find(node, word);
  return before && before->isDeclaredRead;
}

bool Rehearsal::isNotWritten(std::size_t node, const PointerWord &word) const {
  const Word *before = find(node, word);
  return before && before->isNotWritten && before->value == word.value;
}

bool Rehearsal::isDeclaredAside(std::size_t node, const PointerWord &word) const {
  const Word *before = find(node, word);
  return before && before->isDeclaredAside;
}

std::vector<ReachedMembers> Rehearsal::reaches(const LiftedGraph &graph, const Heap &heap) const {
  std::map<Member, std::set<Member>> now; // by allocation of the first capture
  const auto add = [&](const auto &before, std::uint64_t address) {
    const std::optional<Hit> hit = before.target ? heap.find(address) : std::nullopt;
    if (hit && hit->offset == before.offset)
      now[*before.target].emplace(hit->block, hit->member);
  };
  for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
    for (const PointerWord &word : graph.nodes[node].words)
      if (const Word *before = find(node, word))
        add(*before, word.value);
    const std::vector<TouchedSpan> &spans = graph.nodes[node].spans;
    for (std::size_t span = 0; span < std::min(spans.size(), nodes_[node].spans.size()); ++span)
      add(nodes_[node].spans[span], spans[span].address);
  }
  std::vector<ReachedMembers> reaches(graph.nodes.size());
  for (std::size_t node = 0; node < graph.nodes.size(); ++node) {
    ReachedMembers &reach = reaches[node];
    for (const Reached &reached : nodes_[node].reach) {
      std::set<Member> members = now[reached.target];
      if (const std::optional<Hit> hit = reached.isOurs ? std::nullopt : heap.find(reached.address))
        members.emplace(hit->block, hit->member);
      reach.isWhole = reach.isWhole && !members.empty();
      for (const Member &member : members)
        reach.members.push_back({member, reached.isWritten});
    }
  }
  return reaches;
}

const std::string &Rehearsal::nameOf(std::size_t node, const PointerWord &word) const {
  static const std::string none;
  const Word *before = find(node, word);
  return before ? before->name : none;
}

} // namespace pumpgraph::runtime
