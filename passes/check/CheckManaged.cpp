// SPDX-License-Identifier: Apache-2.0
// In managed memory a page has one copy, wherever it is, so nothing but a discard can do harm. A discard is checked as
// in any plan, on a step in which all pages have frames of their own. What is particular to the agent is checked here:
// paths over operations that it may leave undone order nothing but the writing of their words.
#include "passes/check/CheckResidency.h"
#include "passes/check/Form.h"
#include "passes/check/Report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace pumpgraph {

namespace {

using check::nodeLabel;
using check::Report;

/// The captured nodes that complete before each operation is asked for, by node. The word of an operation is written
/// after those of the operations before it, whether these are done or not.
std::vector<std::set<NodeIndex>> askedAfter(const Description &lowered) {
  std::vector<std::set<NodeIndex>> after(lowered.nodes.size());
  std::vector<Edge> edges = lowered.edges;
  std::sort(edges.begin(), edges.end(), [](const Edge &a, const Edge &b) { return a.to < b.to; });
  for (const Edge &edge : edges) {
    if (!isOperation(lowered.nodes[edge.to].kind) || edge.kind != EdgeKind::Full)
      continue;
    if (isOperation(lowered.nodes[edge.from].kind))
      after[edge.to].insert(after[edge.from].begin(), after[edge.from].end());
    else
      after[edge.to].insert(edge.from);
  }
  return after;
}

bool isWellFormed(const Description &lowered, Report &report) {
  for (BufferIndex buffer = 0; buffer < lowered.buffers.size(); ++buffer)
    if (lowered.buffers[buffer].continues != noBuffer)
      report.add(
          {.rule = "continuation", .buffer = buffer},
          fmt::format("\"{}\" goes on at another address; managed memory is at one", lowered.buffers[buffer].name));
  for (NodeIndex node = 0; node < lowered.nodes.size(); ++node) {
    const Node &added = lowered.nodes[node];
    if (isCopy(added.kind))
      report.add({.rule = "copy", .node = node},
                 fmt::format("{} is a copy; managed memory has no pool", nodeLabel(lowered, node)));
    if (!isAdded(added.kind) || added.buffer >= lowered.buffers.size())
      continue;
    const Buffer &buffer = lowered.buffers[added.buffer];
    if (added.range.size == 0 || added.range.end() > buffer.size || added.range.offset % lowered.pageBytes != 0 ||
        (added.range.end() % lowered.pageBytes != 0 && added.range.end() != buffer.size))
      report.add({.rule = "range", .node = node},
                 fmt::format("{} is not made of whole pages of \"{}\"", nodeLabel(lowered, node), buffer.name));
    if (added.kind == NodeKind::Discard && !buffer.isPrivate)
      report.add({.rule = "exclusive", .node = node},
                 fmt::format("{} discards what others may look at", nodeLabel(lowered, node)));
  }
  for (const Edge &edge : lowered.edges)
    if (edge.from >= edge.to || edge.to >= lowered.nodes.size()) {
      report.add({.rule = "edge"}, fmt::format("the edge from node {} to node {} is not in the order of the {} nodes",
                                               edge.from, edge.to, lowered.nodes.size()));
      return false;
    }
  return report.empty();
}

} // namespace

Description asUnifiedMemory(const Description &lowered) {
  const std::vector<std::set<NodeIndex>> after = askedAfter(lowered);
  Description step = lowered;
  step.stage = Stage::Planned;
  step.edges.clear();
  std::int32_t frames = 0;
  for (Buffer &buffer : step.buffers) {
    const auto pages = static_cast<std::int32_t>((buffer.size + step.pageBytes - 1) / step.pageBytes);
    buffer.frames.clear();
    for (std::int32_t page = 0; page < pages; ++page)
      buffer.frames.push_back(frames++);
    buffer.mirrored.clear();
    buffer.hosted.clear();
    buffer.resident.clear();
    if (buffer.isPrivate && (buffer.liveIn || buffer.liveOut))
      buffer.resident.push_back({0, buffer.size});
  }
  step.budgetBytes = static_cast<std::uint64_t>(frames) * step.pageBytes;
  step.hostBytes = 0;

  for (Node &node : step.nodes) // in its place, so that nodes keep their numbers
    if (isOperation(node.kind) && node.kind != NodeKind::Discard)
      node.kind = NodeKind::Advise;
  std::set<std::pair<NodeIndex, NodeIndex>> full, programmatic;
  for (const Edge &edge : lowered.edges) {
    const Node &from = lowered.nodes[edge.from], &to = lowered.nodes[edge.to];
    if (!isAdded(from.kind) && !isAdded(to.kind))
      (edge.kind == EdgeKind::Full ? full : programmatic).insert({edge.from, edge.to});
    // Who waits for an operation comes after its word was written, at the least, and after a discard was done.
    if (isOperation(from.kind) && !isAdded(to.kind)) {
      for (const NodeIndex node : after[edge.from])
        full.insert({node, edge.to});
      if (from.kind == NodeKind::Discard)
        full.insert({edge.from, edge.to});
    }
  }
  for (NodeIndex node = 0; node < lowered.nodes.size(); ++node)
    if (lowered.nodes[node].kind == NodeKind::Discard)
      for (const NodeIndex before : after[node])
        full.insert({before, node});
  for (const auto &[from, to] : full)
    step.edges.push_back({from, to, EdgeKind::Full});
  for (const auto &[from, to] : programmatic)
    if (!full.contains({from, to}))
      step.edges.push_back({from, to, EdgeKind::Programmatic});
  return step;
}

std::vector<Violation> checkManaged(const Description &lowered, std::size_t limit) {
  Report report(limit);
  check::checkStage(lowered, {Stage::LoweredManaged}, report);
  if (!report.empty() || !isWellFormed(lowered, report))
    return report.take();
  return checkResidency(asUnifiedMemory(lowered), limit);
}

} // namespace pumpgraph
