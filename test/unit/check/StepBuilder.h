// SPDX-License-Identifier: Apache-2.0
/// \file
/// Writes small steps by hand, one line for each buffer and node.
#pragma once

#include "pumpgraph/graph/Description.h"

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace pumpgraph::test {

/// Pages have 4 bytes. Nodes run one after the other unless `unordered` says otherwise.
class StepBuilder {
public:
  static constexpr std::uint64_t pageBytes = 4;

  explicit StepBuilder(std::uint64_t budgetPages) {
    step_.stage = Stage::Planned;
    step_.pageBytes = pageBytes;
    step_.budgetBytes = budgetPages * pageBytes;
  }

  enum Live { dead, liveOut, liveInOut };

  /// A private buffer of as many whole pages as there are frames.
  BufferIndex buffer(const std::string &name, std::vector<std::int32_t> frames, Live live = dead) {
    Buffer buffer;
    buffer.name = name;
    buffer.size = frames.size() * pageBytes;
    buffer.frames = std::move(frames);
    buffer.isPrivate = true;
    buffer.liveIn = live == liveInOut;
    buffer.liveOut = live != dead;
    step_.buffers.push_back(buffer);
    return static_cast<BufferIndex>(step_.buffers.size() - 1);
  }

  BufferIndex exclusive(const std::string &name, std::vector<std::int32_t> frames) {
    const BufferIndex index = buffer(name, std::move(frames), liveInOut);
    step_.buffers[index].isPrivate = false;
    return index;
  }

  NodeIndex kernel(const std::string &name, std::vector<Access> accesses) {
    Node node;
    node.kind = NodeKind::Kernel;
    node.captured = captured_++;
    node.name = name;
    node.accesses = std::move(accesses);
    return add(node);
  }

  /// Runs a kernel again, which becomes pure, without what it has aside.
  NodeIndex repeat(NodeIndex original) {
    step_.nodes[original].isPure = true;
    Node node = step_.nodes[original];
    node.kind = NodeKind::Rematerialize;
    node.repeats = std::exchange(node.captured, notCaptured);
    std::erase_if(node.accesses, [](const Access &access) { return access.isAside; });
    return add(node);
  }

  NodeIndex move(NodeKind kind, BufferIndex buffer) { return move(kind, buffer, {0, step_.buffers[buffer].size}); }
  NodeIndex move(NodeKind kind, BufferIndex buffer, Range range, std::uint64_t hostOffset = 0) {
    Node node;
    node.kind = kind;
    node.buffer = buffer;
    node.range = range;
    node.hostOffset = hostOffset;
    return add(node);
  }

  NodeIndex evict(BufferIndex buffer) { return move(NodeKind::Evict, buffer); }
  NodeIndex prefetch(BufferIndex buffer) { return move(NodeKind::Prefetch, buffer); }
  NodeIndex discard(BufferIndex buffer) { return move(NodeKind::Discard, buffer); }

  Access read(BufferIndex buffer) const { return access(buffer, modeRead, modeNone); }
  Access write(BufferIndex buffer) const { return access(buffer, modeWrite, modeWrite); }
  Access update(BufferIndex buffer) const { return access(buffer, modeReadWrite, modeNone); }
  Access mayWrite(BufferIndex buffer) const { return access(buffer, modeWrite, modeNone); }
  Access aside(BufferIndex buffer) const {
    Access access = update(buffer);
    access.parameter = 1;
    access.isAside = true;
    return access;
  }
  Access access(BufferIndex buffer, std::uint8_t may, std::uint8_t must) const {
    return {buffer, {0, step_.buffers[buffer].size}, may, must};
  }

  void resident(BufferIndex buffer) { step_.buffers[buffer].resident = {{0, step_.buffers[buffer].size}}; }
  /// Resident, and in host memory as well.
  void mirrored(BufferIndex buffer) {
    resident(buffer);
    step_.buffers[buffer].mirrored = step_.buffers[buffer].resident;
  }
  /// A buffer in which the value of `before` goes on.
  BufferIndex continuation(BufferIndex before, std::vector<std::int32_t> frames) {
    const BufferIndex index = buffer(step_.buffers[before].name, std::move(frames));
    step_.buffers[index].continues = before;
    return index;
  }
  void hosted(BufferIndex buffer) { step_.buffers[buffer].hosted = {{0, step_.buffers[buffer].size}}; }
  void edge(NodeIndex from, NodeIndex to, EdgeKind kind = EdgeKind::Full) { step_.edges.push_back({from, to, kind}); }
  /// From here on `edge` says what comes after what.
  void unordered() { chains_ = false; }

  Description &step() { return step_; }

private:
  NodeIndex add(const Node &node) {
    const auto index = static_cast<NodeIndex>(step_.nodes.size());
    step_.nodes.push_back(node);
    if (chains_ && index > 0)
      edge(index - 1, index);
    return index;
  }

  Description step_;
  std::int32_t captured_ = 0;
  bool chains_ = true;
};

/// What was captured of a plan whose captured nodes run one after the other.
inline Description capturedPart(const Description &plan) {
  Description captured = plan;
  captured.stage = Stage::Captured;
  captured.budgetBytes = captured.hostBytes = 0;
  captured.nodes.clear();
  captured.edges.clear();
  for (Buffer &buffer : captured.buffers) {
    buffer.frames.clear();
    buffer.resident.clear();
    buffer.mirrored.clear();
    buffer.hosted.clear();
  }
  for (const Node &node : plan.nodes)
    if (node.captured != notCaptured) {
      const auto index = static_cast<NodeIndex>(captured.nodes.size());
      captured.nodes.push_back(node);
      if (index > 0)
        captured.edges.push_back({index - 1, index});
    }
  return captured;
}

} // namespace pumpgraph::test
