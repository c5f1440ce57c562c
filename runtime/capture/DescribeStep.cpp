// SPDX-License-Identifier: Apache-2.0
#include "runtime/capture/DescribeStep.h"

#include <algorithm>
#include <map>

namespace pumpgraph::runtime {
namespace {

/// The guaranteed alignment: vectorised kernels may touch that far past the size asked for.
constexpr std::uint64_t alignment = 512;

/// The bytes of its block that belong to an allocation.
Range rangeOf(const Block &block, const Allocation &member) {
  return {member.offset, block.shared ? member.room : roundUp(member.size, alignment)};
}

/// What a buffer's facts are drawn from: its members that a graph of this capture may use.
struct Facts {
  bool isPrivate = true;
  bool liveIn = false;
  bool liveOut = false;
};

/// Allocated and freed during the capture: nobody else can have it. Everything else is its caller's, who may give it to
/// us by declaring it private; then its value outlives the step.
Facts factsOf(const Allocation &member, CaptureNumber capture) {
  if (member.bornIn == capture && !member.live)
    return {true, false, false};
  return {member.declaredPrivate, true, true};
}

Facts factsOf(const Block &block, CaptureNumber capture) {
  Facts facts;
  for (const Allocation &member : block.members) {
    if (!member.live && member.diedIn != capture)
      continue;
    const Facts one = factsOf(member, capture);
    facts.isPrivate = facts.isPrivate && one.isPrivate;
    facts.liveIn = facts.liveIn || one.liveIn;
    facts.liveOut = facts.liveOut || one.liveOut;
  }
  if (!facts.isPrivate)
    facts.liveIn = facts.liveOut = true;
  return facts;
}

std::string nameOf(const Block &block) {
  const Allocation &first = block.members.front();
  const std::string name = first.name.empty() ? fmt::format("buffer{}", first.serial) : first.name;
  if (!block.shared || block.members.size() == 1)
    return name;
  return fmt::format("{}+{} small", name, block.members.size() - 1);
}

bool wasBornIn(const Block &block, CaptureNumber capture) {
  return std::any_of(block.members.begin(), block.members.end(),
                     [&](const Allocation &member) { return member.bornIn == capture; });
}

/// Whether the first node that touches `buffer` overwrites all of it, so that no earlier value is ever read.
bool isOverwrittenFirst(const Description &step, BufferIndex buffer) {
  for (const Node &node : step.nodes)
    for (const Access &access : node.accesses)
      if (access.buffer == buffer)
        return (access.must & modeWrite) != 0 && access.range.offset == 0 &&
               access.range.size >= step.buffers[buffer].size;
  return false;
}

} // namespace

std::uint64_t contentBytes(const Block &block) {
  return block.shared ? block.usedBytes : roundUp(block.members.front().size, alignment);
}

std::unordered_map<BlockId, BufferIndex> CapturedStep::bufferOf() const {
  std::unordered_map<BlockId, BufferIndex> buffers;
  for (BufferIndex buffer = 0; buffer < blocks.size(); ++buffer)
    buffers.emplace(blocks[buffer], buffer);
  return buffers;
}

AccessFinder::AccessFinder(const Heap &heap, const Rehearsal *rehearsal, const LiftedGraph &captured)
    : heap_(heap), rehearsal_(rehearsal && rehearsal->matches(captured, heap) ? rehearsal : nullptr), order_(heap) {}

std::vector<AccessFinder::Touch> AccessFinder::touches(std::size_t position, const LiftedNode &node) const {
  std::vector<Touch> touches;
  const auto add = [&](const Touch &touch) {
    const bool known = std::any_of(touches.begin(), touches.end(), [&](const Touch &other) {
      return other.block == touch.block && other.access == touch.access;
    });
    if (!known)
      touches.push_back(touch);
  };
  for (const PointerWord &word : node.words) {
    const std::optional<Hit> hit = heap_.find(word.value);
    if (!hit)
      continue;
    if (rehearsal_ && rehearsal_->refutes(position, word, order_.of(*hit))) {
      ++refutedWords_;
      continue;
    }
    const Block &block = heap_.block(hit->block);
    Touch touch{hit->block, {}};
    touch.access.range = rangeOf(block, block.members[hit->member]);
    if (word.plain && word.inner == 0)
      touch.access.parameter = static_cast<std::int32_t>(word.parameter);
    add(touch);
  }
  for (const TouchedSpan &span : node.spans) {
    const std::optional<Hit> hit = heap_.find(span.address);
    if (!hit)
      continue;
    const Block &block = heap_.block(hit->block);
    const std::uint64_t offset = span.address > block.address ? span.address - block.address : 0;
    const std::uint64_t limit = contentBytes(block);
    if (offset >= limit || span.bytes == 0)
      continue;
    Touch touch{hit->block, {}};
    touch.access.range = {offset, std::min(span.bytes, limit - offset)};
    touch.access.may = span.may;
    touch.access.must = span.must;
    touch.access.evidence = Evidence::Proved;
    add(touch);
  }
  return touches;
}

CapturedStep describeStep(const LiftedGraph &graph, const Heap &heap, const AccessFinder &finder,
                          const std::set<BlockId> &pointedAt) {
  CapturedStep step;
  Description &description = step.description;
  description.pageBytes = pageBytes;

  // Buffers in the order of their creation, so that the same program gives the same description.
  std::vector<std::vector<AccessFinder::Touch>> touches;
  std::map<BlockId, BufferIndex> touched;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    touches.push_back(finder.touches(i, graph.nodes[i]));
    for (const AccessFinder::Touch &touch : touches.back())
      touched.emplace(touch.block, 0);
  }
  for (auto &[id, buffer] : touched) {
    const Block &block = heap.block(id);
    const Facts facts = factsOf(block, heap.capture());
    buffer = static_cast<BufferIndex>(step.blocks.size());
    step.blocks.push_back(id);
    Buffer &described = description.buffers.emplace_back();
    described.name = nameOf(block);
    described.address = block.address;
    described.size = contentBytes(block);
    described.isPrivate = facts.isPrivate && !pointedAt.contains(id);
    described.liveIn = facts.liveIn || !described.isPrivate;
    described.liveOut = facts.liveOut || !described.isPrivate;
    if (!block.hasMemory() && !wasBornIn(block, heap.capture()))
      step.notes.push_back(
          fmt::format("\"{}\" was allocated in a rehearsal, where nothing runs: it has no value yet", described.name));
  }

  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const LiftedNode &lifted = graph.nodes[i];
    step.nodes.push_back(lifted.handle);
    Node &node = description.nodes.emplace_back();
    node.kind = lifted.kind;
    node.captured = static_cast<std::int32_t>(i);
    node.name = lifted.name;
    if (node.kind == NodeKind::Opaque)
      node.reason = lifted.refusal;
    for (AccessFinder::Touch &touch : touches[i]) {
      touch.access.buffer = touched.at(touch.block);
      node.accesses.push_back(touch.access);
    }
    if (!lifted.refusal.empty())
      step.refusals.push_back(fmt::format("node {} \"{}\": {}", i, lifted.name, lifted.refusal));
  }
  for (const LiftedEdge &edge : graph.edges)
    description.edges.push_back({edge.from, edge.to, edge.kind});

  for (BufferIndex buffer = 0; buffer < description.buffers.size(); ++buffer) {
    Buffer &described = description.buffers[buffer];
    // A result is not what the next replay starts from, if the step sets all of it before it looks.
    if (described.isPrivate && wasBornIn(heap.block(step.blocks[buffer]), heap.capture()) &&
        isOverwrittenFirst(description, buffer))
      described.liveIn = false;
  }

  for (const BlockId id : heap.blocks()) {
    const Block &block = heap.block(id);
    const bool isResult = wasBornIn(block, heap.capture()) && block.hasLiveMember();
    if (!touched.contains(id) && (pointedAt.contains(id) || (isResult && !block.hasMemory())))
      step.besides.push_back(id);
  }
  if (finder.refutedWords() != 0)
    step.notes.push_back(fmt::format("{} words that looked like addresses did not move with their buffer between the "
                                     "two captures and are taken for numbers",
                                     finder.refutedWords()));
  return step;
}

} // namespace pumpgraph::runtime
