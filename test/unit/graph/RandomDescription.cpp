// SPDX-License-Identifier: Apache-2.0
#include "test/unit/graph/RandomDescription.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <utility>

namespace pumpgraph::test {
namespace {

constexpr std::array capturedKinds = {
    NodeKind::Kernel,          NodeKind::Memcpy,        NodeKind::Memset,      NodeKind::Host,
    NodeKind::Empty,           NodeKind::ChildGraph,    NodeKind::EventRecord, NodeKind::EventWait,
    NodeKind::SemaphoreSignal, NodeKind::SemaphoreWait, NodeKind::MemAlloc,    NodeKind::MemFree,
    NodeKind::BatchMemOp,      NodeKind::Conditional,   NodeKind::Opaque,
};
constexpr std::array plannedKinds = {NodeKind::Evict, NodeKind::Prefetch, NodeKind::Discard};
constexpr std::array copyKinds = {NodeKind::CopyToHost, NodeKind::CopyToDevice};
constexpr std::array managedKinds = {NodeKind::Evict, NodeKind::Prefetch, NodeKind::Discard, NodeKind::Advise};
constexpr std::array names = {"", "relu", "layer1.weight", "a b", "quote\"", "line\nbreak", "\xCE\xBB", "0digit", "k0"};

class Generator {
public:
  explicit Generator(std::uint32_t seed) : random_(seed) {}

  Description run() {
    Description description;
    description.name = pick(std::array{"step", "GPT-2 124M", "a\\b"});
    description.stage = pick(std::array{Stage::Captured, Stage::Planned, Stage::LoweredVirtual, Stage::LoweredManaged});
    description.pageBytes = pick(std::array<std::uint64_t, 3>{4096, 2u << 20, 1000});
    description.budgetBytes = flip() ? 0 : 1 + upTo(1ull << 40);
    description.hostBytes = flip() ? 0 : 1 + upTo(1ull << 40);
    for (std::uint64_t i = 0, count = 1 + upTo(4); i < count; ++i)
      description.buffers.push_back(buffer(description.pageBytes, description.stage));
    for (BufferIndex b = 1; b < description.buffers.size(); ++b)
      if (description.stage != Stage::Captured && flip() && description.buffers[b - 1].continues == noBuffer) {
        description.buffers[b] = description.buffers[b - 1];
        description.buffers[b].continues = b - 1;
      }
    // Transfers need a private buffer.
    description.buffers.front().isPrivate = true;
    for (std::uint64_t i = 0, count = upTo(12); i < count; ++i)
      description.nodes.push_back(node(description, static_cast<std::int32_t>(i)));
    addRepetitions(description);
    for (NodeIndex to = 1; to < description.nodes.size(); ++to)
      for (NodeIndex from = 0; from < to; ++from)
        if (upTo(3) == 0)
          description.edges.push_back({from, to, flip() ? EdgeKind::Full : EdgeKind::Programmatic});
    return description;
  }

private:
  std::uint64_t upTo(std::uint64_t most) { return std::uniform_int_distribution<std::uint64_t>(0, most)(random_); }
  bool flip() { return upTo(1) == 1; }
  template <typename T, std::size_t size> T pick(const std::array<T, size> &values) { return values[upTo(size - 1)]; }

  Buffer buffer(std::uint64_t pageBytes, Stage stage) {
    Buffer buffer;
    buffer.name = pick(names);
    buffer.size = 1 + upTo(9 * pageBytes);
    buffer.address = flip() ? 0 : 0x7f0000000000 + upTo(1u << 30);
    buffer.isPrivate = flip();
    buffer.liveIn = flip();
    buffer.liveOut = flip();
    buffer.isRenamable = flip();
    const std::uint64_t pages = (buffer.size - 1) / pageBytes + 1;
    if (stage != Stage::Captured && flip())
      for (std::uint64_t page = 0; page < pages; ++page)
        buffer.frames.push_back(frameAfter(buffer.frames));
    for (std::uint64_t page = 0; page < pages; page += 2 + upTo(3))
      if (flip())
        buffer.resident.push_back(clip({page * pageBytes, (1 + upTo(1)) * pageBytes}, buffer.size));
    if (buffer.isPrivate && buffer.liveOut)
      for (const Range &range : buffer.resident)
        if (flip()) // all of it, or its first page
          buffer.mirrored.push_back(flip() ? range : Range{range.offset, std::min(range.size, pageBytes)});
    if (const Range last{(pages - 1) * pageBytes, buffer.size - (pages - 1) * pageBytes};
        buffer.isPrivate && flip() && !overlaps(buffer.resident, last))
      buffer.hosted.push_back(last);
    buffer.isPresent = buffer.isPrivate && buffer.liveOut && buffer.mirrored.empty() && flip();
    return buffer;
  }

  /// Often the next frame, sometimes none, so that runs of both kinds occur.
  std::int32_t frameAfter(const std::vector<std::int32_t> &frames) {
    const std::uint64_t choice = upTo(5);
    if (choice == 0)
      return noFrame;
    if (choice == 1 || frames.empty())
      return static_cast<std::int32_t>(upTo(100));
    return frames.back() == noFrame ? noFrame : frames.back() + 1;
  }

  static Range clip(Range range, std::uint64_t size) {
    return {range.offset, std::min(range.size, size - range.offset)};
  }

  double cost() {
    switch (upTo(3)) {
    case 0:
      return std::numeric_limits<double>::quiet_NaN();
    case 1:
      return static_cast<double>(upTo(1000));
    case 2:
      return static_cast<double>(upTo(1u << 20)) / 1000;
    default: {
      // Any bit pattern: the decimal in the text must read back as exactly this number.
      const double value = std::abs(std::bit_cast<double>(upTo(~0ull)));
      return std::isfinite(value) ? value : 0;
    }
    }
  }

  Node node(const Description &description, std::int32_t position) {
    Node node;
    const bool isAdded = description.stage != Stage::Captured && upTo(3) == 0;
    node.kind = isAdded ? addedKind(description.stage) : pick(capturedKinds);
    node.captured = isAdded || flip() ? notCaptured : position;
    node.name = pick(names);
    node.costUs = cost();
    if (node.kind == NodeKind::Opaque)
      node.reason = pick(names);
    if (isAdded)
      fillRange(description, node);
    else
      fillCaptured(description, node);
    return node;
  }

  /// Some nodes are run again at the end.
  void addRepetitions(Description &description) {
    if (description.stage == Stage::LoweredManaged)
      return;
    const std::vector<Node> nodes = description.nodes;
    for (const Node &original : nodes)
      if (original.captured != notCaptured && isRepeatable(original.kind) && flip()) {
        Node &again = description.nodes.emplace_back(original);
        again.kind = NodeKind::Rematerialize;
        again.repeats = std::exchange(again.captured, notCaptured);
        std::erase_if(again.accesses, [](const Access &access) { return access.isAside; });
      }
  }

  NodeKind addedKind(Stage stage) {
    if (stage == Stage::Planned)
      return pick(plannedKinds);
    return stage == Stage::LoweredVirtual ? pick(copyKinds) : pick(managedKinds);
  }

  void fillCaptured(const Description &description, Node &node) {
    node.label = pick(names);
    node.arithmeticUs = flip() ? 0 : static_cast<double>(upTo(1u << 20)) / 1000;
    node.isPure = isRepeatable(node.kind) && flip();
    for (std::uint64_t i = 0, count = upTo(4); i < count; ++i)
      node.accesses.push_back(access(description));
    if (node.isPure && flip())
      setSomeAside(node.accesses);
  }

  /// With those that are not aside go the others of the same bytes.
  void setSomeAside(std::vector<Access> &accesses) {
    for (Access &access : accesses)
      access.isAside = access.parameter != unknownParameter && flip();
    for (std::size_t other = 0; other = accessBesideOneAside(accesses), other < accesses.size();)
      for (Access &access : accesses)
        if (access.buffer == accesses[other].buffer && access.range.overlaps(accesses[other].range))
          access.isAside = false;
  }

  Access access(const Description &description) {
    Access access;
    access.buffer = static_cast<BufferIndex>(upTo(description.buffers.size() - 1));
    const std::uint64_t size = description.buffers[access.buffer].size;
    access.range.offset = upTo(size - 1);
    access.range.size = 1 + upTo(size - access.range.offset - 1);
    access.may = static_cast<std::uint8_t>(1 + upTo(2));
    access.must = static_cast<std::uint8_t>(upTo(3)) & access.may;
    access.evidence = static_cast<Evidence>(upTo(4));
    access.parameter = static_cast<std::int32_t>(upTo(5)) - 1;
    access.slowdown = 1 + static_cast<float>(upTo(3)) * 0.7F;
    return access;
  }

  void fillRange(const Description &description, Node &node) {
    node.buffer = 0;
    const std::uint64_t size = description.buffers[0].size, page = description.pageBytes;
    const std::uint64_t first = upTo((size - 1) / page);
    node.range = clip({first * page, (1 + upTo(3)) * page}, size);
    if (node.kind == NodeKind::Advise)
      node.advice = static_cast<Advice>(1 + upTo(3));
    if (isCopy(node.kind))
      node.hostOffset = upTo(1ull << 40);
    node.joined = (movesUp(node.kind) || movesDown(node.kind)) && flip();
  }

  std::mt19937 random_;
};

} // namespace

Description randomDescription(std::uint32_t seed) {
  return Generator(seed).run();
}

std::string dump(const Description &description) {
  std::string text =
      fmt::format("step {:?} {} page {} budget {} host {}\n", description.name, stageName(description.stage),
                  description.pageBytes, description.budgetBytes, description.hostBytes);
  for (const Buffer &buffer : description.buffers) {
    text += fmt::format("buffer {:?} at {:#x} size {} private {} present {} in {} out {} frames {}", buffer.name,
                        buffer.address, buffer.size, buffer.isPrivate, buffer.isPresent, buffer.liveIn, buffer.liveOut,
                        buffer.frames);
    for (const Range &range : buffer.resident)
      text += fmt::format(" resident {}+{}", range.offset, range.size);
    for (const Range &range : buffer.mirrored)
      text += fmt::format(" mirrored {}+{}", range.offset, range.size);
    for (const Range &range : buffer.hosted)
      text += fmt::format(" hosted {}+{}", range.offset, range.size);
    text += '\n';
  }
  for (const Node &node : description.nodes) {
    const std::uint64_t costBits = std::isnan(node.costUs) ? ~0ull : std::bit_cast<std::uint64_t>(node.costUs);
    text += fmt::format("node kind {} captured {} {:?} label {:?} {:?} cost {:#x} arithmetic {} buffer {} range {}+{} "
                        "advice {} host {} joined "
                        "{}",
                        static_cast<int>(node.kind), node.captured, node.name, node.label, node.reason, costBits,
                        node.arithmeticUs, node.buffer, node.range.offset, node.range.size,
                        static_cast<int>(node.advice), node.hostOffset, node.joined);
    for (const Access &access : node.accesses)
      text += fmt::format(" ({} {}+{} may {} must {} evidence {} parameter {} slowdown {} aside {})", access.buffer,
                          access.range.offset, access.range.size, access.may, access.must,
                          static_cast<int>(access.evidence), access.parameter, access.slowdown, access.isAside);
    text += '\n';
  }
  for (const Edge &edge : description.edges)
    text += fmt::format("edge {} -> {} kind {}\n", edge.from, edge.to, static_cast<int>(edge.kind));
  return text;
}

} // namespace pumpgraph::test
