// SPDX-License-Identifier: Apache-2.0
/// \file
/// Captured steps, and plans of them, written down by hand: pages of one byte would do, so pages have 1,000 bytes and
/// links move 1,000 bytes, one page, a microsecond.
#pragma once

#include "passes/analysis/Machine.h"
#include "pumpgraph/graph/Description.h"

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace pumpgraph::test {

inline constexpr std::uint64_t smallPage = 1000;

/// One page a microsecond each way, one and a half both ways together, by kernels too; no overhead.
inline Machine smallMachine() {
  Machine machine;
  machine.upBytesPerSecond = machine.downBytesPerSecond = 1e9;
  machine.bothBytesPerSecond = 1.5e9;
  machine.hostedShare = 1;
  machine.besideHostedShare = 0;
  machine.copyOverheadUs = 0;
  return machine;
}

inline BufferIndex addBuffer(Description &step, const std::string &name, std::uint64_t bytes, bool isPrivate,
                             bool isLive) {
  Buffer buffer;
  buffer.name = name;
  buffer.size = bytes;
  buffer.isPrivate = isPrivate;
  buffer.liveIn = buffer.liveOut = isLive;
  step.buffers.push_back(std::move(buffer));
  return static_cast<BufferIndex>(step.buffers.size() - 1);
}

class SmallStep {
public:
  SmallStep() { step.pageBytes = smallPage; }

  /// A private buffer that lives in the step only.
  BufferIndex local(const std::string &name, std::uint64_t pages) { return add(name, pages * smallPage, true, false); }
  /// A private buffer whose value lives across the step.
  BufferIndex live(const std::string &name, std::uint64_t pages) { return add(name, pages * smallPage, true, true); }
  BufferIndex exclusive(const std::string &name, std::uint64_t pages) {
    return add(name, pages * smallPage, false, true);
  }

  /// A buffer in which the value of `before` goes on.
  BufferIndex continuation(BufferIndex before) {
    const Buffer &first = step.buffers[before];
    const BufferIndex index = add(first.name, first.size, true, false);
    step.buffers[index].continues = before;
    return index;
  }

  Access read(BufferIndex b) const { return {b, whole(b), modeRead, modeRead}; }
  Access write(BufferIndex b) const { return {b, whole(b), modeWrite, modeWrite}; }
  Access update(BufferIndex b) const { return {b, whole(b), modeReadWrite, modeReadWrite}; }
  Access mayUse(BufferIndex b) const { return {b, whole(b), modeReadWrite, modeNone}; }

  /// A kernel after the one before it.
  NodeIndex kernel(const std::string &name, double costUs, std::vector<Access> accesses) {
    const NodeIndex node = alone(name, costUs, std::move(accesses));
    if (node > 0)
      edge(node - 1, node);
    return node;
  }
  /// A kernel that waits for nothing.
  NodeIndex alone(const std::string &name, double costUs, std::vector<Access> accesses) {
    Node node;
    node.name = name;
    node.captured = static_cast<std::int32_t>(step.nodes.size());
    node.costUs = costUs;
    node.accesses = std::move(accesses);
    step.nodes.push_back(std::move(node));
    return static_cast<NodeIndex>(step.nodes.size() - 1);
  }
  /// An evict, prefetch or discard of pages [first, first + count).
  NodeIndex residency(NodeKind kind, BufferIndex buffer, std::uint64_t first, std::uint64_t count) {
    step.stage = Stage::Planned;
    Node node;
    node.kind = kind;
    node.buffer = buffer;
    node.range = {first * smallPage, count * smallPage};
    step.nodes.push_back(std::move(node));
    return static_cast<NodeIndex>(step.nodes.size() - 1);
  }
  void edge(NodeIndex from, NodeIndex to, EdgeKind kind = EdgeKind::Full) { step.edges.push_back({from, to, kind}); }

  Description step;

private:
  BufferIndex add(const std::string &name, std::uint64_t bytes, bool isPrivate, bool isLive) {
    return addBuffer(step, name, bytes, isPrivate, isLive);
  }
  Range whole(BufferIndex b) const { return {0, step.buffers[b].size}; }
};

} // namespace pumpgraph::test
