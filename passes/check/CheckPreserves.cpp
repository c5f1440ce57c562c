// SPDX-License-Identifier: Apache-2.0
#include "passes/check/CheckResidency.h"
#include "passes/check/CompletionOrder.h"
#include "passes/check/Report.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace pumpgraph {

namespace {

using check::CompletionOrder;
using check::nodeLabel;
using check::Report;

using NodeByPosition = std::unordered_map<std::int32_t, NodeIndex>;

bool isAdded(const Node &node) {
  return isResidency(node.kind) || isCopy(node.kind) || node.kind == NodeKind::Rematerialize;
}

/// Nodes by their position in the captured graph. Reports nodes that are neither captured nor added by a plan, and
/// positions that occur twice.
NodeByPosition capturedNodes(const Description &description, const char *which, Report &report) {
  NodeByPosition byPosition;
  for (NodeIndex index = 0; index < description.nodes.size(); ++index) {
    const Node &node = description.nodes[index];
    if (isAdded(node) != (node.captured < 0)) {
      report.add({.rule = "kind", .node = index},
                 fmt::format("{} of the {} step {}", nodeLabel(description, index), which,
                             isAdded(node) ? "is added but claims to be captured"
                                           : "is no transfer but is not a captured node either"));
      continue;
    }
    if (isAdded(node))
      continue;
    const auto [other, isFirst] = byPosition.try_emplace(node.captured, index);
    if (!isFirst)
      report.add({.rule = "twice", .node = index, .otherNode = other->second},
                 fmt::format("{} and {} of the {} step are both captured node {}",
                             nodeLabel(description, other->second), nodeLabel(description, index), which,
                             node.captured));
  }
  return byPosition;
}

void compareBuffers(const Description &captured, const Description &rewritten, Report &report) {
  if (captured.pageBytes != rewritten.pageBytes)
    report.add({.rule = "page"},
               fmt::format("pages of {} bytes have become pages of {} bytes", captured.pageBytes, rewritten.pageBytes));
  const auto isCaptured = [&](BufferIndex index) { return rewritten.buffers[index].continues == noBuffer; };
  for (BufferIndex index = 0; index < std::max(captured.buffers.size(), rewritten.buffers.size()); ++index)
    if (index >= rewritten.buffers.size() || isCaptured(index) != (index < captured.buffers.size()))
      return report.add({.rule = "buffers"},
                        fmt::format("{} buffers have become {}", captured.buffers.size(), rewritten.buffers.size()));
  for (BufferIndex index = 0; index < rewritten.buffers.size(); ++index)
    if (!isCaptured(index) && !captured.buffers[capturedBuffer(rewritten.buffers, index)].isRenamable)
      report.add({.rule = "renamed", .buffer = index},
                 fmt::format("\"{}\" goes on at another address, but is not renamable", rewritten.buffers[index].name));
  for (BufferIndex index = 0; index < captured.buffers.size(); ++index) {
    const Buffer &before = captured.buffers[index];
    const Buffer &after = rewritten.buffers[index];
    const auto facts = [](const Buffer &buffer) {
      return std::tuple(buffer.address, buffer.size, buffer.isPrivate, buffer.isPresent, buffer.liveIn, buffer.liveOut);
    };
    if (facts(before) != facts(after))
      report.add({.rule = "buffer", .buffer = index},
                 fmt::format("buffer {} \"{}\" has changed: address, size, private, present, live-in, live-out were "
                             "{:#x}, {}, {}, {}, {}, {} and are {:#x}, {}, {}, {}, {}, {}",
                             index, before.name, before.address, before.size, before.isPrivate, before.isPresent,
                             before.liveIn, before.liveOut, after.address, after.size, after.isPrivate, after.isPresent,
                             after.liveIn, after.liveOut));
  }
}

/// The accesses of a node in an order that does not depend on how they were found. How an access is known (evidence) is
/// not part of what it does, nor at which address.
auto accessKeys(const Description &step, const Node &node, bool asideAlone = false) {
  std::vector<std::tuple<BufferIndex, std::uint64_t, std::uint64_t, std::uint8_t, std::uint8_t>> keys;
  for (const Access &access : node.accesses)
    if (access.isAside || !asideAlone)
      keys.push_back({capturedBuffer(step.buffers, access.buffer), access.range.offset, access.range.size, access.may,
                      access.must});
  std::sort(keys.begin(), keys.end());
  return keys;
}

void compareNodes(const Description &captured, const NodeByPosition &positions, const Description &rewritten,
                  const NodeByPosition &newPositions, Report &report) {
  for (NodeIndex index = 0; index < captured.nodes.size(); ++index) {
    const Node &node = captured.nodes[index];
    const auto found = newPositions.find(node.captured);
    if (node.captured < 0)
      continue;
    if (found == newPositions.end()) {
      report.add({.rule = "gone", .node = index}, fmt::format("captured {} is gone", nodeLabel(captured, index)));
      continue;
    }
    const Node &copy = rewritten.nodes[found->second];
    if (copy.kind != node.kind || copy.name != node.name)
      report.add({.rule = "other", .node = found->second},
                 fmt::format("captured {} has become another node, \"{}\"", nodeLabel(captured, index), copy.name));
    if (accessKeys(rewritten, copy) != accessKeys(captured, node))
      report.add({.rule = "accesses", .node = found->second},
                 fmt::format("captured {} has other accesses than before", nodeLabel(captured, index)));
    if (copy.isPure && !node.isPure)
      report.add({.rule = "pure", .node = found->second},
                 fmt::format("captured {} has become pure", nodeLabel(captured, index)));
    const auto before = accessKeys(captured, node, true), after = accessKeys(rewritten, copy, true);
    if (!std::includes(before.begin(), before.end(), after.begin(), after.end()))
      report.add({.rule = "aside", .node = found->second},
                 fmt::format("an access of captured {} has become aside", nodeLabel(captured, index)));
  }
  for (const auto &[position, index] : newPositions)
    if (!positions.contains(position))
      report.add({.rule = "new", .node = index}, fmt::format("{} claims to be captured node {}, which does not exist",
                                                             nodeLabel(rewritten, index), position));
}

void compareDependencies(const Description &captured, const Description &rewritten, const NodeByPosition &newPositions,
                         Report &report) {
  const CompletionOrder completion(rewritten, CompletionOrder::Follow::Full);
  std::vector<std::pair<NodeIndex, NodeIndex>> programmatic;
  for (const Edge &edge : rewritten.edges)
    if (edge.kind == EdgeKind::Programmatic)
      programmatic.push_back({edge.from, edge.to});
  std::sort(programmatic.begin(), programmatic.end());

  for (const Edge &edge : captured.edges) {
    const auto from = newPositions.find(captured.nodes[edge.from].captured);
    const auto to = newPositions.find(captured.nodes[edge.to].captured);
    if (from == newPositions.end() || to == newPositions.end() || completion.before(from->second, to->second))
      continue;
    const bool stillProgrammatic =
        std::binary_search(programmatic.begin(), programmatic.end(), std::pair(from->second, to->second));
    if (edge.kind == EdgeKind::Programmatic && stillProgrammatic)
      continue;
    report.add({.rule = "dependency", .node = to->second, .otherNode = from->second},
               fmt::format("{} must {} {}, but nothing makes it wait{}", nodeLabel(rewritten, to->second),
                           edge.kind == EdgeKind::Full ? "wait for" : "be launched after",
                           nodeLabel(rewritten, from->second),
                           stillProgrammatic ? " for completion: the edge has become programmatic" : ""));
  }
}

bool edgesAscend(const Description &description, const char *which, Report &report) {
  for (const Edge &edge : description.edges)
    if (edge.from >= edge.to || edge.to >= description.nodes.size()) {
      report.add({.rule = "edge"}, fmt::format("the edge from node {} to node {} of the {} step is not in the order of "
                                               "its {} nodes",
                                               edge.from, edge.to, which, description.nodes.size()));
      return false;
    }
  return true;
}

} // namespace

std::vector<Violation> checkPreserves(const Description &captured, const Description &rewritten, std::size_t limit) {
  Report report(limit);
  if (!edgesAscend(captured, "captured", report) || !edgesAscend(rewritten, "rewritten", report))
    return report.take();
  const NodeByPosition positions = capturedNodes(captured, "captured", report);
  const NodeByPosition newPositions = capturedNodes(rewritten, "rewritten", report);
  compareBuffers(captured, rewritten, report);
  compareNodes(captured, positions, rewritten, newPositions, report);
  compareDependencies(captured, rewritten, newPositions, report);
  return report.take();
}

} // namespace pumpgraph
